use super::*;

/// A tree of a machine's firmware.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        fs::create_dir_all(tree.0.path().join("sys/firmware/efi/efivars")).unwrap();
        tree
    }

    fn variable(&self, name: &str, vendor: &str, content: &[u8]) {
        let name = format!("sys/firmware/efi/efivars/{name}-{vendor}");
        fs::write(self.0.path().join(name), [&[6, 0, 0, 0], content].concat()).unwrap();
    }

    fn words(&self, name: &str, words: &[u16]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.variable(name, GLOBAL, &bytes);
    }

    /// A boot option that leads nowhere, or over the network.
    fn option(&self, number: u16, name: &str) {
        let mut path = Vec::new();
        if name.contains("PXE") {
            // An Ethernet address, and IPv4 behind it (UEFI 2.10, section 10.3.4).
            path.extend([3, 11, 37, 0].iter().chain(&[0; 33]));
            path.extend([3, 12, 27, 0].iter().chain(&[0; 23]));
        }
        path.extend([0x7f, 0xff, 4, 0]);
        let mut bytes = vec![1, 0, 0, 0, path.len() as u8, 0];
        bytes.extend(name.encode_utf16().chain([0]).flat_map(u16::to_le_bytes));
        bytes.extend(path);
        self.variable(&format!("Boot{number:04X}"), GLOBAL, &bytes);
    }

    fn time(&self, name: &str, micros: &str) {
        let bytes: Vec<u8> = micros
            .encode_utf16()
            .chain([0])
            .flat_map(u16::to_le_bytes)
            .collect();
        self.variable(name, LOADER, &bytes);
    }

    fn fpdt(&self, times: [&str; 5]) {
        let folder = self.0.path().join("sys/firmware/acpi/fpdt/boot");
        fs::create_dir_all(&folder).unwrap();
        let names = [
            "firmware_start_ns",
            "bootloader_load_ns",
            "bootloader_launch_ns",
            "exitbootservice_start_ns",
            "exitbootservice_end_ns",
        ];
        for (name, time) in names.iter().zip(times) {
            fs::write(folder.join(name), format!("{time}\n")).unwrap();
        }
    }

    fn examine(&self) -> Result<Report> {
        examine(self.0.path())
    }
}

/// The times of table 2 of Intel's paper of 2014.
const PAPER: [&str; 5] = [
    "21000000",
    "7037000000",
    "20246000000",
    "40363000000",
    "40365000000",
];

#[test]
fn times_of_firmware_and_loader_and_the_order_are_found() {
    let tree = Tree::new();
    tree.fpdt(PAPER);
    tree.time("LoaderTimeInitUSec", "20300000");
    tree.time("LoaderTimeExecUSec", "30000000");
    tree.words("BootCurrent", &[3]);
    tree.words("BootOrder", &[1, 0x1a, 3, 2]);
    tree.words("Timeout", &[5]);
    for (number, name) in [
        (1, "UEFI PXEv6"),
        (0x1a, "Disk"),
        (3, "UEFI PXEv4"),
        (2, "Shell"),
    ] {
        tree.option(number, name);
    }
    let report = tree.examine().unwrap();
    let points = report.checkpoints.as_ref().unwrap();
    assert_eq!(points.reset_end_s, Some(0.021));
    assert_eq!(
        (points.load_image_s, points.start_image_s),
        (Some(7.037), Some(20.246))
    );
    assert_eq!(
        (points.loader_began_s, points.loader_done_s),
        (Some(20.3), Some(30.0))
    );
    assert_eq!(
        (points.exit_entry_s, points.exit_s),
        (Some(40.363), Some(40.365))
    );
    assert_eq!(points.option.as_deref(), Some("Boot0003 UEFI PXEv4"));
    assert!(points.over_network);
    assert_eq!(
        points.options_before,
        ["Boot0001 UEFI PXEv6", "Boot001A Disk"]
    );
    assert_eq!(points.missing, Vec::<String>::new());
    let ids: Vec<_> = report.findings.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["boot-menu", "options-before"]);
    tree.words("BootCurrent", &[0x1a]);
    let from_disk = tree.examine().unwrap().checkpoints.unwrap();
    assert!(!from_disk.over_network);
    let shown = crate::text::shown(&report).replace('\n', " ");
    assert!(shown.starts_with("40.4 s from reset to the end of boot services: 7.0 firmware, 13.2 loading the boot loader,"), "{shown}");
}

#[test]
fn what_is_missing_is_told() {
    let tree = Tree::new();
    let nothing = format!("{:#}", tree.examine().unwrap_err());
    assert!(
        nothing.contains("has no FPDT") && nothing.contains("LoaderTimeInitUSec"),
        "{nothing}"
    );
    tree.time("LoaderTimeInitUSec", "3500000");
    tree.time("LoaderTimeExecUSec", "4000000");
    let report = tree.examine().unwrap();
    let points = report.checkpoints.as_ref().unwrap();
    assert_eq!(points.missing.len(), 2, "{points:?}");
    assert_eq!(report.findings, []);
    let shown = crate::text::shown(&report);
    assert!(
        shown.starts_with("4.0 s from reset to the system's start: 3.5 firmware, 0.5 boot loader."),
        "{shown}"
    );
    assert!(
        shown.contains("the firmware's times: this firmware has no FPDT"),
        "{shown}"
    );
    // A counter that was not set back.
    tree.fpdt(["1", "2", "3", "4", "9000000000000"]);
    let points = tree.examine().unwrap().checkpoints.unwrap();
    assert!(
        points.missing[0].contains("was not set to zero") && points.exit_s.is_none(),
        "{points:?}"
    );
    let other = tempfile::tempdir().unwrap();
    let said = format!("{:#}", examine(other.path()).unwrap_err());
    assert!(said.contains("not booted by UEFI"), "{said}");
}

#[test]
fn variables_that_make_no_sense_are_none() {
    let tree = Tree::new();
    tree.fpdt(PAPER);
    tree.time("LoaderTimeInitUSec", "soon");
    tree.variable("BootCurrent", GLOBAL, &[7]);
    let points = tree.examine().unwrap().checkpoints.unwrap();
    assert!(
        points.missing.iter().any(|one| one.contains("soon")),
        "{points:?}"
    );
    assert!(
        points
            .missing
            .iter()
            .any(|one| one.contains("BootCurrent is empty")),
        "{points:?}"
    );
}

#[test]
fn what_wireboot_tells_is_shown() {
    let tree = Tree::new();
    tree.time("LoaderTimeInitUSec", "3500000");
    tree.time("LoaderTimeExecUSec", "4000000");
    let told = r#"{"schema":1,"machine":{"mac":"52:54:00:12:34:56"},"timeline":[{"kind":"card","start_s":0,"end_s":0.25,"what":"virtio-net"}],
        "network":{"span_s":0.5,"transfers":[{"protocol":"http","file":"http://a/linux","start_s":0.3,"end_s":0.4,"outcome":"complete","bytes":7}]}}"#;
    tree.variable("WirebootBoot", WIREBOOT, told.as_bytes());
    let report = tree.examine().unwrap();
    assert_eq!(report.machine.mac, "52:54:00:12:34:56");
    assert_eq!(report.network.transfers[0].bytes, 7);
    let shown = crate::text::shown(&report);
    assert!(
        shown.contains("4.0 s from reset") && shown.contains("network card and link: virtio-net"),
        "{shown}"
    );
    tree.variable("WirebootBoot", WIREBOOT, b"{\"schema\":7}");
    let points = tree.examine().unwrap().checkpoints.unwrap();
    let said = points.missing.join(" ");
    assert!(
        said.contains("WirebootBoot: a report of schema 7"),
        "{said}"
    );
}

#[test]
fn an_option_has_its_number_and_its_name() {
    let tree = Tree::new();
    tree.option(7, "UEFI PXEv4");
    let variables = tree.0.path().join("sys/firmware/efi/efivars");
    assert_eq!(option_name(&variables, 7), "Boot0007 UEFI PXEv4");
    assert_eq!(option_name(&variables, 8), "Boot0008");
}
