//! A boot configuration for a directory that has none, made from the names of the files in it.

use wireboot_wire::bootconf::{BootConfig, Entry, Program, Setting};

use crate::folder::Folder;
use crate::trees::{self, encoded, file};

/// Name of the network boot program.
pub(crate) const BOOT_PROGRAM: &str = "wireboot.efi";
/// Name of the boot configuration.
pub(crate) const BOOT_CONFIGURATION: &str = "wireboot.conf";
/// Name of the program that examines machines.
pub(crate) const DOCTOR: &str = "doctor.efi";

/// The configuration's text; `None` when nothing in the folder looks bootable. `url`: where machines reach the directory by HTTP. `has_doctor`:
/// machines get doctor.efi, though the folder has none.
pub(crate) fn generate(folder: &Folder, url: Option<&str>, has_doctor: bool) -> Option<String> {
    let names = names(folder);
    let mut entries = linux_entries(&names);
    entries.extend(trees::entries(folder, url));
    entries.extend(efi_entries(&names));
    // One entry alone boots at once, without a menu: so it stays, unless somebody has put the program there.
    if names.iter().any(|name| name == DOCTOR) || (has_doctor && entries.len() > 1) {
        entries.push(diagnosis());
    }
    let config = BootConfig {
        default: 0,
        timeout: None,
        settings: Vec::new(),
        entries,
        warnings: Vec::new(),
    };
    (!config.entries.is_empty())
        .then(|| format!("# Made from the names of the files here.\n{config}"))
}

/// The machine is examined with the firmware's own network, which is what a network boot has.
fn diagnosis() -> Entry {
    Entry {
        title: "Diagnose this machine".to_owned(),
        program: Program::Efi(file(DOCTOR.to_owned())),
        initrd: Vec::new(),
        options: String::new(),
        settings: vec![Setting {
            key: "network",
            value: "firmware".to_owned(),
        }],
    }
}

/// Names of the files in the folder that can be served, sorted; none when it cannot be read.
fn names(folder: &Folder) -> Vec<String> {
    let entries = folder.entries("").unwrap_or_default();
    entries
        .into_iter()
        .filter(|entry| !entry.is_folder && !entry.name.contains(char::is_control))
        .map(|entry| entry.name)
        .filter(|name| folder.serves(name))
        .collect()
}

/// The part of a kernel's or RAM disk's name that tells one version from another: `-6.1.0-amd64` in `vmlinuz-6.1.0-amd64`.
/// `None` when the name is no such name.
fn version<'a>(name: &'a str, stems: &[&str]) -> Option<&'a str> {
    let rest = stems.iter().find_map(|stem| name.strip_prefix(stem))?;
    let rest = [".img", ".gz", ".xz", ".zst", ".cpio", ".efi"]
        .iter()
        .fold(rest, |rest, end| rest.strip_suffix(end).unwrap_or(rest));
    let rest = rest.strip_prefix(".img").unwrap_or(rest);
    (rest.is_empty() || rest.starts_with('-')).then_some(rest)
}

/// Every kernel with the RAM disks of its version; a kernel without one of its own gets those without a version, or the only one.
fn linux_entries(names: &[String]) -> Vec<Entry> {
    let kernel_version =
        |name: &str| version(name, &["linux", "vmlinuz", "vmlinux", "bzImage"]).map(str::to_owned);
    let disks: Vec<_> = names
        .iter()
        .filter_map(|name| Some((name, version(name, &["initrd", "initramfs"])?)))
        .collect();
    let kernels: Vec<_> = names
        .iter()
        .filter_map(|name| Some((name, kernel_version(name)?)))
        .collect();
    kernels
        .iter()
        .map(|(kernel, version)| {
            let of = |wanted: &str| {
                disks
                    .iter()
                    .filter(|disk| disk.1 == wanted)
                    .map(|disk| file(encoded(disk.0)))
                    .collect::<Vec<_>>()
            };
            let mut initrd = of(version);
            if initrd.is_empty() {
                initrd = of("");
            }
            if initrd.is_empty() && kernels.len() == 1 {
                initrd = disks.iter().map(|disk| file(encoded(disk.0))).collect();
            }
            Entry {
                title: kernel.to_string(),
                program: Program::Linux(file(encoded(kernel))),
                initrd,
                options: String::new(),
                settings: Vec::new(),
            }
        })
        .collect()
}

/// Every other EFI program: unified kernel images, loaders, shells.
fn efi_entries(names: &[String]) -> Vec<Entry> {
    names
        .iter()
        .filter(|name| name.to_lowercase().ends_with(".efi"))
        .filter(|name| ![BOOT_PROGRAM, DOCTOR].contains(&name.as_str()))
        // For other machines.
        .filter(|name| {
            !["aa64.efi", "arm64.efi"]
                .iter()
                .any(|end| name.to_lowercase().ends_with(end))
        })
        .filter(|name| version(name, &["linux", "vmlinuz", "vmlinux", "bzImage"]).is_none())
        .map(|name| Entry {
            title: name.clone(),
            program: Program::Efi(file(encoded(name))),
            initrd: Vec::new(),
            options: String::new(),
            settings: Vec::new(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(files: &[&str]) -> Option<BootConfig> {
        made_with(files, false)
    }

    fn made_with(files: &[&str], has_doctor: bool) -> Option<BootConfig> {
        let directory = tempfile::tempdir().unwrap();
        for name in files {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        let text = generate(&Folder::open(directory.path()).unwrap(), None, has_doctor)?;
        let config = wireboot_wire::bootconf::parse(&text).unwrap();
        assert!(config.warnings.is_empty(), "{text}");
        Some(config)
    }

    fn shown(config: &BootConfig) -> Vec<String> {
        let line = |entry: &Entry| {
            entry
                .files()
                .map(|file| file.url.clone())
                .collect::<Vec<_>>()
                .join(" + ")
        };
        config.entries.iter().map(line).collect()
    }

    #[test]
    fn nothing_bootable_makes_no_configuration() {
        assert_eq!(
            made(&[
                "README",
                "wireboot.efi",
                "linux.txt",
                "initrd.gz",
                "sub/vmlinuz"
            ]),
            None
        );
    }

    #[test]
    fn what_no_client_can_get_is_in_no_entry() {
        assert_eq!(made(&["vmlinuz-a\\b", "a\\b.efi"]), None);
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("vmlinuz"), "").unwrap();
        for name in [BOOT_CONFIGURATION, "linux"] {
            std::os::unix::fs::symlink("nowhere", folder.path().join(name)).unwrap();
        }
        let text = generate(&Folder::open(folder.path()).unwrap(), None, false).unwrap();
        let config = wireboot_wire::bootconf::parse(&text).unwrap();
        assert_eq!(shown(&config), ["vmlinuz"]);
    }

    #[test]
    fn a_kernel_gets_the_ram_disks() {
        for (kernel, disk) in [
            ("linux", "initrd.gz"),
            ("vmlinuz", "initrd.img"),
            ("bzImage", "initramfs.cpio.gz"),
            ("vmlinuz-linux", "initramfs-linux.img"),
            ("vmlinuz", "initrd-custom"),
        ] {
            assert_eq!(
                shown(&made(&[kernel, disk]).unwrap()),
                [format!("{kernel} + {disk}")]
            );
        }
        assert_eq!(shown(&made(&["vmlinuz"]).unwrap()), ["vmlinuz"]);
        assert_eq!(
            shown(&made(&["vmlinuz", "initrd.gz", "initrd.img"]).unwrap()),
            ["vmlinuz + initrd.gz + initrd.img"]
        );
    }

    #[test]
    fn versions_stay_together() {
        let config = made(&[
            "vmlinuz-6.1.0-9-amd64",
            "vmlinuz-6.12.1",
            "initrd.img-6.1.0-9-amd64",
            "initrd.img-6.12.1",
        ])
        .unwrap();
        assert_eq!(
            shown(&config),
            [
                "vmlinuz-6.1.0-9-amd64 + initrd.img-6.1.0-9-amd64",
                "vmlinuz-6.12.1 + initrd.img-6.12.1"
            ]
        );
    }

    #[test]
    fn debians_network_boot_image() {
        let config = made(&[
            "version.info",
            "debian-installer/amd64/linux",
            "debian-installer/amd64/initrd.gz",
            "debian-installer/amd64/grubx64.efi",
        ])
        .unwrap();
        assert_eq!(
            shown(&config),
            ["debian-installer/amd64/linux + debian-installer/amd64/initrd.gz"]
        );
        assert_eq!(config.entries[0].title, "Debian installer");
    }

    #[test]
    fn a_menu_offers_to_diagnose_the_machine_and_none_is_shown_for_that() {
        let titles = |files: &[&str], has_doctor| {
            let config = made_with(files, has_doctor)?;
            assert_eq!(config.default, 0);
            let entries = config.entries.iter();
            Some(entries.map(|one| one.title.clone()).collect::<Vec<_>>())
        };
        let shown = |titles: &[&str]| Some(titles.iter().map(|one| one.to_string()).collect());
        assert_eq!(titles(&[], true), None);
        assert_eq!(titles(&["vmlinuz"], true), shown(&["vmlinuz"]));
        let two = ["vmlinuz", "shell.efi"];
        assert_eq!(titles(&two, false), shown(&two));
        let diagnosis = "Diagnose this machine";
        assert_eq!(
            titles(&two, true),
            shown(&["vmlinuz", "shell.efi", diagnosis])
        );
        // Who puts it there wants it.
        assert_eq!(
            titles(&["vmlinuz", "doctor.efi"], true),
            shown(&["vmlinuz", diagnosis])
        );
        assert_eq!(titles(&["doctor.efi"], false), shown(&[diagnosis]));
        let config = made(&["vmlinuz", "doctor.efi"]).unwrap();
        assert_eq!(shown_settings(&config), ["", "network firmware"]);
    }

    fn shown_settings(config: &BootConfig) -> Vec<String> {
        let settings = |entry: &Entry| {
            let all = entry.settings.iter();
            let words = all.map(|one| format!("{} {}", one.key, one.value));
            words.collect::<Vec<_>>().join(", ")
        };
        config.entries.iter().map(settings).collect()
    }

    #[test]
    fn efi_programs_come_after_kernels_and_names_are_urls() {
        let config = made(&[
            "a shell 100%.efi",
            "vmlinuz",
            "wireboot.efi",
            "grubaa64.efi",
            "ipxe-arm64.efi",
        ])
        .unwrap();
        assert_eq!(shown(&config), ["vmlinuz", "a%20shell%20100%25.efi"]);
    }
}
