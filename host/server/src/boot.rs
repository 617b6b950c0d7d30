//! What a client boots: the same for both IP versions, apart from how its file is written.
//!
//! | client                        | boots the first of these that DIR holds                           |
//! |-------------------------------|-------------------------------------------------------------------|
//! | wireboot                      | `wireboot.conf`, by HTTP                                          |
//! | iPXE (options 77, 175)        | `boot.ipxe`, by HTTP; else as firmware, but for iPXE once more    |
//! | x64 UEFI                      | `wireboot.efi`                                                    |
//! | BIOS                          | `pxelinux.0`, `lpxelinux.0`, `undionly.kpxe`                      |
//! | arm64 UEFI                    | `grubaa64.efi`, `ipxe-arm64.efi`                                  |

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::boot_conf::BOOT_PROGRAM;
use crate::directory::Directory;
use crate::event::{Event, Written};

/// What a client says about itself.
#[derive(Debug)]
pub(crate) struct Client<'a> {
    pub user_classes: Vec<&'a [u8]>,
    pub vendor_class: &'a str,
    pub architectures: Vec<u16>,
    /// It sends options of iPXE's own (option 175).
    pub has_ipxe_options: bool,
}

/// Where clients find files: the URL that stands before a file's name.
#[derive(Clone, Debug)]
pub(crate) struct FileUrls {
    /// All of the URL of wireboot.conf.
    pub configuration: String,
    /// `http://SERVER/`, if there is an HTTP server.
    pub http: Option<String>,
    /// What firmware is told of the TFTP server, if there is one.
    pub tftp: Option<String>,
    /// `http://SERVER/`, or `tftp://SERVER/` without an HTTP server.
    pub url: String,
}

/// What a client boots.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Boot {
    /// The client does not boot.
    Nothing,
    File(String),
    /// It wants to boot, but what it can run is not here.
    Unserved(String),
}

/// Programs for a kind of firmware.
struct Firmware {
    what: &'static str,
    /// Client system architectures (IANA, "Processor Architecture Types"), by PXE and by HTTP Boot.
    pxe: &'static [u16],
    http: &'static [u16],
    programs: &'static [BootProgram],
}

/// A program that firmware may boot.
struct BootProgram {
    name: &'static str,
    /// It is iPXE, which asks again and must not be given itself.
    is_ipxe: bool,
}

const fn program(name: &'static str) -> BootProgram {
    BootProgram {
        name,
        is_ipxe: false,
    }
}

const fn ipxe(name: &'static str) -> BootProgram {
    BootProgram {
        name,
        is_ipxe: true,
    }
}

const FIRMWARE: &[Firmware] = &[
    Firmware {
        what: "x64 UEFI firmware",
        // Firmware says 7 or, as early documents had it, 9.
        pxe: &[7, 9],
        http: &[16],
        programs: &[program(BOOT_PROGRAM)],
    },
    Firmware {
        what: "BIOS firmware",
        pxe: &[0],
        http: &[],
        programs: &[
            program("pxelinux.0"),
            program("lpxelinux.0"),
            ipxe("undionly.kpxe"),
        ],
    },
    Firmware {
        what: "arm64 UEFI firmware",
        pxe: &[11],
        http: &[19],
        programs: &[program("grubaa64.efi"), ipxe("ipxe-arm64.efi")],
    },
];

/// The script of iPXE.
const IPXE_SCRIPT: &str = "boot.ipxe";

impl Client<'_> {
    fn software(&self) -> Option<ClientSoftware> {
        let is = |class: &[u8]| self.user_classes.contains(&class);
        let boots = ["PXEClient", "HTTPClient"];
        if is(b"wireboot") {
            Some(ClientSoftware::Wireboot)
        } else if is(b"iPXE") || self.has_ipxe_options {
            Some(ClientSoftware::Ipxe)
        } else {
            let boots = boots.iter().any(|one| self.vendor_class.starts_with(one));
            boots.then_some(ClientSoftware::Firmware)
        }
    }

    /// Chooses among the files of the directory; `goes_round`: wireboot has started this iPXE, it seems.
    fn boots(
        &self,
        software: ClientSoftware,
        urls: FileUrls,
        directory: &Directory,
        goes_round: bool,
    ) -> Boot {
        let holds = |name: &str| directory.find(name).is_ok();
        let by_http = self.vendor_class.starts_with("HTTPClient");
        if software == ClientSoftware::Wireboot {
            return Boot::File(urls.configuration);
        }
        if software == ClientSoftware::Ipxe && holds(IPXE_SCRIPT) {
            return Boot::File(urls.url + IPXE_SCRIPT);
        }
        let is = |firmware: &&Firmware| {
            let known = if by_http { firmware.http } else { firmware.pxe };
            let mut architectures = self.architectures.iter();
            architectures.any(|architecture| known.contains(architecture))
        };
        let Some(firmware) = FIRMWARE.iter().find(is) else {
            return unserved(&self.architectures);
        };
        let what = firmware.what;
        let ipxe = match software {
            ClientSoftware::Ipxe => "iPXE on ",
            _ => "",
        };
        let (prefix, protocol, option) = match by_http {
            true => (urls.http, "HTTP", "--no-http"),
            false => (urls.tftp, "TFTP", "--no-tftp"),
        };
        let Some(prefix) = prefix else {
            return Boot::Unserved(format!(
                "{ipxe}{what}: it boots by {protocol}, which {option} turned off"
            ));
        };
        if goes_round {
            return Boot::Unserved(format!(
                "{ipxe}{what}: wireboot has started it, and is not given to it again; put {IPXE_SCRIPT}, a script for it, into the served directory"
            ));
        }
        let programs = firmware.programs.iter();
        let programs =
            programs.filter(|program| software != ClientSoftware::Ipxe || !program.is_ipxe);
        // Whether wireboot.efi is there is told at the start.
        let found = programs
            .clone()
            .find(|program| program.name == BOOT_PROGRAM || holds(program.name));
        if let Some(program) = found {
            return Boot::File(prefix + program.name);
        }
        let script = (software == ClientSoftware::Ipxe).then_some(IPXE_SCRIPT);
        let names = script.into_iter().chain(programs.map(|one| one.name));
        let names: Vec<&str> = names.collect();
        Boot::Unserved(format!(
            "{ipxe}{what}: wireboot.efi is for x64 UEFI machines only; put {} into the served directory for this one",
            names.join(" or ")
        ))
    }
}

fn unserved(architectures: &[u16]) -> Boot {
    let what = match architectures.first() {
        Some(6 | 15) => "32-bit UEFI firmware".to_owned(),
        Some(10 | 18) => "UEFI firmware for 32-bit Arm".to_owned(),
        Some(other) => format!("architecture {other}"),
        None => "firmware that does not say its architecture (option 93, over IPv6 61)".to_owned(),
    };
    Boot::Unserved(format!("{what}: there is no boot file for it"))
}

/// Which software of a machine asks: its firmware, or what that has booted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClientSoftware {
    Firmware,
    Ipxe,
    Wireboot,
}

/// Time in which a machine that comes again is taken to be in the same boot.
const ONE_BOOT: Duration = Duration::from_secs(600);
/// Rounds of iPXE and wireboot in that time that a machine may make: it may have been switched off and on.
const ROUNDS: u32 = 3;
/// Machines that are remembered. When there are more, all are forgotten.
const MACHINES: usize = 4096;

/// What is remembered of a machine.
#[derive(Clone, Debug)]
struct Machine {
    software: ClientSoftware,
    /// Firmware, and no iPXE, came before wireboot.
    from_firmware: bool,
    /// How often iPXE has followed wireboot.
    rounds: u32,
    since: Instant,
    /// Why it was refused, as was told if it was written.
    told: Option<(String, Written)>,
}

/// Why a machine boots nothing, which is still to be told.
#[derive(Debug)]
pub(crate) struct Untold {
    why: String,
    written: Written,
}

impl Untold {
    /// `event` with these words. They are told once it is written.
    pub(crate) fn told_by(self, event: Event) -> Event {
        event.message(self.why).noted_by(self.written)
    }
}

/// The machines that have asked, by hardware address or, over IPv6, by IP address.
#[derive(Debug, Default)]
pub(crate) struct Machines(HashMap<Vec<u8>, Machine>);

impl Machines {
    /// What a client boots. The second value is why it boots nothing, if nobody could read that yet.
    pub(crate) fn boots(
        &mut self,
        machine: &[u8],
        client: &Client<'_>,
        urls: FileUrls,
        directory: &Directory,
        now: Instant,
    ) -> (Boot, Option<Untold>) {
        let Some(software) = client.software() else {
            return (Boot::Nothing, None);
        };
        let goes_round = self.goes_round(machine, software, now);
        let boot = client.boots(software, urls, directory, goes_round);
        let Boot::Unserved(why) = &boot else {
            return (boot, None);
        };
        let told = self.0.get_mut(machine).map(|machine| &mut machine.told);
        let is_told = |told: &&mut Option<(String, Written)>| {
            let told = told.as_ref();
            told.is_some_and(|(known, written)| known == why && written.is_so())
        };
        let untold = told.filter(|told| !is_told(told)).map(|told| {
            let (why, written) = told.insert((why.clone(), Written::default())).clone();
            Untold { why, written }
        });
        (boot, untold)
    }

    /// Notes what of the machine asks, and whether it is an iPXE that wireboot has started.
    fn goes_round(&mut self, machine: &[u8], software: ClientSoftware, now: Instant) -> bool {
        if self.0.len() >= MACHINES && !self.0.contains_key(machine) {
            self.0.clear();
        }
        let known = self.0.entry(machine.to_vec()).or_insert(Machine {
            software,
            from_firmware: false,
            rounds: 0,
            since: now,
            told: None,
        });
        if now.saturating_duration_since(known.since) > ONE_BOOT {
            *known = Machine {
                software,
                from_firmware: false,
                rounds: 0,
                since: now,
                told: known.told.take(),
            };
        }
        match (known.software, software) {
            (ClientSoftware::Wireboot, ClientSoftware::Ipxe)
                if known.from_firmware || known.rounds >= ROUNDS =>
            {
                return true;
            }
            (ClientSoftware::Wireboot, ClientSoftware::Ipxe) => known.rounds += 1,
            (_, ClientSoftware::Firmware) => (known.rounds, known.since) = (0, now),
            (ClientSoftware::Firmware, ClientSoftware::Wireboot) => {
                (known.from_firmware, known.since) = (true, now)
            }
            (ClientSoftware::Ipxe, ClientSoftware::Wireboot) => known.from_firmware = false,
            _ => {}
        }
        known.software = software;
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Events, Kind};

    struct Served {
        directory: Directory,
        _folder: tempfile::TempDir,
    }

    impl std::ops::Deref for Served {
        type Target = Directory;

        fn deref(&self) -> &Directory {
            &self.directory
        }
    }

    fn directory(names: &[&str]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        for name in names {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        Served {
            directory: Directory::open(folder.path(), None).unwrap(),
            _folder: folder,
        }
    }

    fn urls() -> FileUrls {
        FileUrls {
            configuration: "http://s/wireboot.conf".to_owned(),
            http: Some("http://s/".to_owned()),
            tftp: Some("tftp://s/".to_owned()),
            url: "http://s/".to_owned(),
        }
    }

    fn client(class: &'static str, user: &'static str, architecture: u16) -> Client<'static> {
        Client {
            user_classes: vec![user.as_bytes()],
            vendor_class: class,
            architectures: vec![architecture],
            has_ipxe_options: false,
        }
    }

    fn boots(names: &[&str], client: &Client<'_>) -> Boot {
        let now = Instant::now();
        let directory = directory(names);
        Machines::default()
            .boots(b"one", client, urls(), &directory, now)
            .0
    }

    #[track_caller]
    fn is_file(boot: Boot, file: &str) {
        assert_eq!(boot, Boot::File(file.to_owned()));
    }

    #[track_caller]
    fn is_refused(boot: Boot, words: &str) {
        let Boot::Unserved(why) = boot else {
            panic!("{boot:?}");
        };
        assert!(why.contains(words), "{why}");
    }

    #[test]
    fn firmware_gets_the_first_program_that_is_there() {
        let all = [
            "pxelinux.0",
            "lpxelinux.0",
            "undionly.kpxe",
            "grubaa64.efi",
            "ipxe-arm64.efi",
        ];
        let pxe = |architecture| client("PXEClient:Arch", "", architecture);
        let http = |architecture| client("HTTPClient:Arch", "", architecture);
        for architecture in [7, 9] {
            is_file(boots(&[], &pxe(architecture)), "tftp://s/wireboot.efi");
        }
        is_file(boots(&[], &http(16)), "http://s/wireboot.efi");
        for (first, name) in ["pxelinux.0", "lpxelinux.0", "undionly.kpxe"]
            .into_iter()
            .enumerate()
        {
            is_file(boots(&all[first..], &pxe(0)), &format!("tftp://s/{name}"));
        }
        for (first, name) in [(3, "grubaa64.efi"), (4, "ipxe-arm64.efi")] {
            is_file(boots(&all[first..], &pxe(11)), &format!("tftp://s/{name}"));
            is_file(boots(&all[first..], &http(19)), &format!("http://s/{name}"));
        }
        is_refused(
            boots(&all[3..], &pxe(0)),
            "BIOS firmware: wireboot.efi is for x64 UEFI machines only; put pxelinux.0 or lpxelinux.0 or undionly.kpxe into",
        );
        is_refused(
            boots(&all[..3], &pxe(11)),
            "arm64 UEFI firmware: wireboot.efi is for x64 UEFI machines only; put grubaa64.efi or ipxe-arm64.efi into",
        );
        is_refused(boots(&all, &pxe(6)), "32-bit UEFI");
        is_refused(boots(&all, &pxe(10)), "32-bit Arm");
        is_refused(boots(&all, &pxe(27)), "architecture 27");
        // HTTP Boot's numbers are no PXE's.
        is_refused(boots(&all, &http(7)), "architecture 7");
        is_refused(boots(&all, &pxe(16)), "architecture 16");
        let mut silent = pxe(7);
        silent.architectures.clear();
        is_refused(boots(&all, &silent), "option 93");
        assert_eq!(boots(&all, &client("dhcpcd", "", 7)), Boot::Nothing);
        is_file(
            boots(&[], &client("PXEClient", "wireboot", 7)),
            "http://s/wireboot.conf",
        );
    }

    #[test]
    fn what_is_turned_off_is_said() {
        let mut off = urls();
        (off.http, off.tftp) = (None, None);
        let directory = directory(&["pxelinux.0"]);
        for (client, option) in [
            (client("PXEClient", "", 0), "--no-tftp"),
            (client("HTTPClient", "", 16), "--no-http"),
        ] {
            let mut machines = Machines::default();
            let (boot, _) =
                machines.boots(b"one", &client, off.clone(), &directory, Instant::now());
            is_refused(boot, option);
        }
    }

    #[test]
    fn ipxe_gets_its_script_and_never_itself() {
        let ipxe = |architecture| client("PXEClient:Arch", "iPXE", architecture);
        for architecture in [0, 7, 11, 27] {
            is_file(
                boots(&["boot.ipxe", "pxelinux.0"], &ipxe(architecture)),
                "http://s/boot.ipxe",
            );
        }
        is_file(boots(&[], &ipxe(7)), "tftp://s/wireboot.efi");
        is_file(
            boots(&["undionly.kpxe", "lpxelinux.0"], &ipxe(0)),
            "tftp://s/lpxelinux.0",
        );
        is_refused(
            boots(&["undionly.kpxe"], &ipxe(0)),
            "iPXE on BIOS firmware: wireboot.efi is for x64 UEFI machines only; put boot.ipxe or pxelinux.0 or lpxelinux.0 into",
        );
        is_refused(
            boots(&["ipxe-arm64.efi"], &ipxe(11)),
            "put boot.ipxe or grubaa64.efi into",
        );
        let by_options = Client {
            has_ipxe_options: true,
            ..client("PXEClient", "", 7)
        };
        is_file(boots(&["boot.ipxe"], &by_options), "http://s/boot.ipxe");
    }

    /// Who of a machine asks, at a second, and whether it is given a file to boot.
    fn asks(machines: &mut Machines, began: Instant, user: &'static str, second: u64) -> bool {
        let now = began + Duration::from_secs(second);
        let client = client("PXEClient", user, 7);
        let boot = machines.boots(b"one", &client, urls(), &directory(&[]), now);
        if let Boot::Unserved(why) = &boot.0 {
            assert!(why.contains("put boot.ipxe"), "{why}");
        }
        matches!(boot.0, Boot::File(_))
    }

    #[test]
    fn an_ipxe_that_wireboot_has_started_is_not_given_wireboot() {
        let (mut machines, began) = (Machines::default(), Instant::now());
        let mut asks = |user, second| asks(&mut machines, began, user, second);
        assert!(asks("", 0) && asks("wireboot", 5));
        for second in [8, 9, 12] {
            assert!(!asks("iPXE", second), "{second}");
        }
        // Switched off and on.
        assert!(asks("", 30) && asks("wireboot", 35) && !asks("iPXE", 40));
        assert!(asks("iPXE", 700), "much later");
    }

    #[test]
    fn an_ipxe_of_the_machines_own_starts_wireboot_but_not_for_ever() {
        let (mut machines, began) = (Machines::default(), Instant::now());
        let mut asks = |user, second| asks(&mut machines, began, user, second);
        // Each asks twice: a Discover and a Request.
        for round in 0..4 {
            let at = round * 20;
            assert!(asks("iPXE", at) && asks("iPXE", at + 1), "{round}");
            assert!(asks("wireboot", at + 5) && asks("wireboot", at + 6));
        }
        assert!(!asks("iPXE", 80) && !asks("iPXE", 81));
        assert!(asks("iPXE", 700));
        assert!(asks("wireboot", 701) && asks("iPXE", 702), "counted anew");
    }

    #[test]
    fn what_is_remembered_is_bounded_and_a_refusal_told_once() {
        let mut machines = Machines::default();
        let (now, none) = (Instant::now(), directory(&[]));
        let mut asked = |machine: u16, architecture: u16, written: bool| {
            let client = client("PXEClient", "", architecture);
            let (boot, untold) =
                machines.boots(&machine.to_be_bytes(), &client, urls(), &none, now);
            assert!(matches!(boot, Boot::Unserved(_)));
            let told = untold.is_some();
            if let Some(untold) = untold.filter(|_| written) {
                Events::default().record(untold.told_by(Event::now(Kind::DhcpIgnored, "")));
            }
            (told, machines.0.len())
        };
        assert_eq!(asked(0, 0, false), (true, 1));
        let mut told = |machine, architecture| asked(machine, architecture, true);
        // There were too many lines for it.
        assert_eq!(told(0, 0), (true, 1));
        assert_eq!(told(0, 0), (false, 1));
        assert_eq!(told(0, 11), (true, 1), "another reason");
        assert_eq!(told(1, 0), (true, 2));
        for machine in 2..MACHINES as u16 {
            assert_eq!(told(machine, 0), (true, usize::from(machine) + 1));
        }
        assert_eq!(told(1, 0), (false, MACHINES));
        assert_eq!(told(MACHINES as u16, 0), (true, 1));
    }
}
