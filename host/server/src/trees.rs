//! What distributions publish for network boots and on their media, known by the names of files, with the kernel options that their
//! installers need to find the rest over HTTP.

use percent_encoding::utf8_percent_encode;
use wireboot_wire::bootconf::{Entry, File, Program};

use crate::boot_conf::NOT_IN_A_PATH;
use crate::directory::Directory;

/// Folders of the served directory that are looked into, besides itself.
const FOLDERS: usize = 64;

/// A distribution's tree. A `*` in a name stands for any text, within one name. In the kernel's name, it stands for the same
/// text in all the others.
struct Tree {
    title: &'static str,
    kernel: &'static str,
    initrd: &'static str,
    /// Files that must be there, too.
    needs: &'static [&'static str],
    /// `{}` is the tree's URL, with a slash at its end; `{1}`, `{2}` are those of the files in `needs`.
    options: &'static str,
}

/// Of those with the same kernel, the first one whose files are there counts.
const TREES: &[Tree] = &[
    // https://wiki.debian.org/PXEBootInstall: netboot.tar.gz
    Tree {
        title: "Debian installer",
        kernel: "debian-installer/amd64/linux",
        initrd: "debian-installer/amd64/initrd.gz",
        needs: &[],
        options: "",
    },
    // live-boot(7): a live CD
    Tree {
        title: "Debian live",
        kernel: "live/vmlinuz",
        initrd: "live/initrd.img",
        needs: &["live/filesystem.squashfs"],
        options: "boot=live components ip=dhcp fetch={1}",
    },
    Tree {
        title: "Debian live",
        kernel: "live/vmlinuz-*",
        initrd: "live/initrd.img-*",
        needs: &["live/filesystem.squashfs"],
        options: "boot=live components ip=dhcp fetch={1}",
    },
    // Anaconda's boot options: a mirror or DVD, a network installation medium, a live medium; also of CentOS, RHEL, Alma and Rocky
    Tree {
        title: "Fedora installer",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["repodata/repomd.xml"],
        options: "ip=dhcp inst.repo={}",
    },
    Tree {
        title: "Fedora installer",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["BaseOS/repodata/repomd.xml"],
        options: "ip=dhcp inst.repo={}",
    },
    Tree {
        title: "Fedora installer",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["images/install.img"],
        options: "ip=dhcp inst.stage2={}",
    },
    Tree {
        title: "Fedora live",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["LiveOS/squashfs.img"],
        options: "ip=dhcp root=live:{1} rd.live.image",
    },
    // Ubuntu Server, "netboot the live server installer": the medium with its image beside it, or the netboot archive
    Tree {
        title: "Ubuntu",
        kernel: "casper/vmlinuz",
        initrd: "casper/initrd",
        needs: &["*.iso"],
        options: "ip=dhcp url={1}",
    },
    Tree {
        title: "Ubuntu",
        kernel: "amd64/linux",
        initrd: "amd64/initrd",
        needs: &["*.iso"],
        options: "root=/dev/ram0 ramdisk_size=1500000 ip=dhcp url={1}",
    },
    // Alpine's "PXE boot": a medium, which has its packages, or the netboot archive
    Tree {
        title: "Alpine",
        kernel: "boot/vmlinuz-*",
        initrd: "boot/initramfs-*",
        needs: &["boot/modloop-*", "apks/x86_64/APKINDEX.tar.gz"],
        options: "ip=dhcp modules=loop,squashfs modloop={1} alpine_repo={}apks",
    },
    Tree {
        title: "Alpine",
        kernel: "boot/vmlinuz-*",
        initrd: "boot/initramfs-*",
        needs: &["boot/modloop-*"],
        options: "ip=dhcp modules=loop,squashfs modloop={1} alpine_repo=http://dl-cdn.alpinelinux.org/alpine/latest-stable/main",
    },
    // mkinitcpio-archiso, docs/README.bootparams
    Tree {
        title: "Arch Linux",
        kernel: "arch/boot/x86_64/vmlinuz-linux",
        initrd: "arch/boot/x86_64/initramfs-linux.img",
        needs: &["arch/x86_64/airootfs.*"],
        options: "archisobasedir=arch archiso_http_srv={} ip=dhcp",
    },
    // linuxrc's parameter reference
    Tree {
        title: "openSUSE installer",
        kernel: "boot/x86_64/loader/linux",
        initrd: "boot/x86_64/loader/initrd",
        needs: &[],
        options: "install={}",
    },
    // Fedora CoreOS, "Live ISO and PXE image reference"; the kernel's name has had both forms
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel-x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img", "config.ign"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal ignition.config.url={2}",
    },
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel-x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal",
    },
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel.x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img", "config.ign"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal ignition.config.url={2}",
    },
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel.x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal",
    },
];

/// Kernels of installers that look for the medium they are from in the machine itself, whatever the options.
const MEDIA_ONLY: &[&str] = &["install.amd/vmlinuz"];

/// An entry for each kernel of a tree, in the directory or a folder of it. `url`: where machines reach the directory by HTTP, with a slash at the
/// end; without it, only what needs no URL.
pub(crate) fn entries(directory: &Directory, url: Option<&str>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    for folder in folders(directory) {
        for tree in TREES {
            for (kernel, text) in matches(directory, &folder, tree.kernel) {
                let kernel = encoded(&kernel);
                let is_known = entries
                    .iter()
                    .any(|one| one.files().any(|file| file.url == kernel));
                let made = || entry(directory, url, &folder, tree, &kernel, text.as_deref());
                if let Some(entry) = (!is_known).then(made).flatten() {
                    entries.push(entry);
                }
            }
        }
    }
    entries
}

/// Kernels that cannot find their installer's files over the network.
pub(crate) fn media_only(directory: &Directory) -> Vec<String> {
    let folders = folders(directory).into_iter();
    let kernels = folders.flat_map(|folder| {
        let names = MEDIA_ONLY.iter();
        names.map(move |name| format!("{folder}{name}"))
    });
    kernels
        .filter(|kernel| directory.find(kernel).is_ok())
        .collect()
}

/// The directory itself and the folders in it, with a slash at the end.
fn folders(directory: &Directory) -> Vec<String> {
    let entries = directory.entries("").unwrap_or_default();
    let inner = entries.into_iter().filter(|entry| entry.is_folder);
    let inner = inner
        .map(|entry| entry.name + "/")
        .filter(|name| !name.contains(char::is_control));
    let this = std::iter::once(String::new());
    this.chain(inner.take(FOLDERS)).collect()
}

fn entry(
    directory: &Directory,
    url: Option<&str>,
    folder: &str,
    tree: &Tree,
    kernel: &str,
    text: Option<&str>,
) -> Option<Entry> {
    // The last of several: the newest, most likely.
    let find = |name: &str| {
        let name = match text {
            Some(text) => name.replace('*', text),
            None => name.to_owned(),
        };
        let found = matches(directory, folder, &name).pop();
        found.map(|(name, _)| encoded(&name))
    };
    let initrd = find(tree.initrd)?;
    let needs: Option<Vec<String>> = tree.needs.iter().map(|name| find(name)).collect();
    let mut options = tree.options.to_owned();
    if options.contains('{') {
        let url = url?;
        options = options.replace("{}", &format!("{url}{}", encoded(folder)));
        for (number, name) in needs?.iter().enumerate() {
            options = options.replace(&format!("{{{}}}", number + 1), &format!("{url}{name}"));
        }
    }
    let title = match folder.strip_suffix('/') {
        None => tree.title.to_owned(),
        Some(folder) => format!("{} ({folder})", tree.title),
    };
    Some(Entry {
        title,
        program: Program::Linux(file(kernel.to_owned())),
        initrd: vec![file(initrd)],
        options,
    })
}

/// Files of a name that may have a `*`, sorted, and what that stands for.
fn matches(directory: &Directory, folder: &str, name: &str) -> Vec<(String, Option<String>)> {
    let path = format!("{folder}{name}");
    let holds = |path: &str| directory.find(path).is_ok();
    if !name.contains('*') {
        return Some((path, None))
            .filter(|(path, _)| holds(path))
            .into_iter()
            .collect();
    }
    let (above, pattern) = path.rsplit_once('/').unwrap_or(("", &path));
    let Some((begin, end)) = pattern.split_once('*') else {
        return Vec::new();
    };
    let entries = directory.entries(above).unwrap_or_default().into_iter();
    let found = entries.filter_map(|entry| {
        let text = entry.name.strip_prefix(begin)?.strip_suffix(end)?;
        let safe = !text.is_empty() && !text.contains(char::is_control);
        let path = match above {
            "" => entry.name.clone(),
            above => format!("{above}/{}", entry.name),
        };
        (safe && holds(&path)).then(|| (path, Some(text.to_owned())))
    });
    found.collect()
}

fn encoded(path: &str) -> String {
    utf8_percent_encode(path, NOT_IN_A_PATH).to_string()
}

fn file(url: String) -> File {
    File { url, sha256: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Program::Linux;

    struct Served {
        directory: Directory,
        _folder: tempfile::TempDir,
    }

    fn served(files: &[&str]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        for name in files {
            let path = folder.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "").unwrap();
        }
        Served {
            directory: Directory::open(folder.path(), None).unwrap(),
            _folder: folder,
        }
    }

    /// Title, kernel, RAM disk and options of each entry.
    fn made(files: &[&str]) -> Vec<[String; 4]> {
        let entries = entries(&served(files).directory, Some("http://10.0.0.1/"));
        let line = |entry: Entry| {
            let Linux(kernel) = entry.program else {
                panic!("{:?}", entry.program);
            };
            let [initrd] = &entry.initrd[..] else {
                panic!("{:?}", entry.initrd);
            };
            [entry.title, kernel.url, initrd.url.clone(), entry.options]
        };
        entries.into_iter().map(line).collect()
    }

    #[track_caller]
    fn is(files: &[&str], expected: [&str; 4]) {
        assert_eq!(made(files), [expected]);
        // One file less, and the tree is none, or another.
        for left_out in files {
            let fewer: Vec<&str> = files
                .iter()
                .copied()
                .filter(|one| one != left_out)
                .collect();
            assert_ne!(made(&fewer), [expected], "without {left_out}");
        }
    }

    #[test]
    fn debian() {
        is(
            &[
                "debian-installer/amd64/linux",
                "debian-installer/amd64/initrd.gz",
            ],
            [
                "Debian installer",
                "debian-installer/amd64/linux",
                "debian-installer/amd64/initrd.gz",
                "",
            ],
        );
        let options = "boot=live components ip=dhcp fetch=http://10.0.0.1/live/filesystem.squashfs";
        is(
            &[
                "live/vmlinuz",
                "live/initrd.img",
                "live/filesystem.squashfs",
            ],
            ["Debian live", "live/vmlinuz", "live/initrd.img", options],
        );
        is(
            &[
                "live/vmlinuz-6.1.0-28-amd64",
                "live/initrd.img-6.1.0-28-amd64",
                "live/filesystem.squashfs",
            ],
            [
                "Debian live",
                "live/vmlinuz-6.1.0-28-amd64",
                "live/initrd.img-6.1.0-28-amd64",
                options,
            ],
        );
        let cd = served(&[
            "install.amd/vmlinuz",
            "install.amd/initrd.gz",
            "12/install.amd/vmlinuz",
        ]);
        assert!(entries(&cd.directory, Some("http://10.0.0.1/")).is_empty());
        assert_eq!(
            media_only(&cd.directory),
            ["install.amd/vmlinuz", "12/install.amd/vmlinuz"]
        );
    }

    #[test]
    fn fedora_and_its_kin() {
        let (kernel, initrd) = ("images/pxeboot/vmlinuz", "images/pxeboot/initrd.img");
        let title = "Fedora installer";
        let repository = "ip=dhcp inst.repo=http://10.0.0.1/";
        is(
            &[kernel, initrd, "repodata/repomd.xml"],
            [title, kernel, initrd, repository],
        );
        is(
            &[kernel, initrd, "BaseOS/repodata/repomd.xml"],
            [title, kernel, initrd, repository],
        );
        is(
            &[kernel, initrd, "images/install.img"],
            [
                title,
                kernel,
                initrd,
                "ip=dhcp inst.stage2=http://10.0.0.1/",
            ],
        );
        is(
            &[kernel, initrd, "LiveOS/squashfs.img"],
            [
                "Fedora live",
                kernel,
                initrd,
                "ip=dhcp root=live:http://10.0.0.1/LiveOS/squashfs.img rd.live.image",
            ],
        );
        let all = [
            kernel,
            initrd,
            "images/install.img",
            "repodata/repomd.xml",
            ".treeinfo",
        ];
        assert_eq!(
            made(&all),
            [[title, kernel, initrd, repository]],
            "the repository first, and once"
        );
    }

    #[test]
    fn ubuntu() {
        let iso = "ubuntu-24.04.1-live-server-amd64.iso";
        let url = "http://10.0.0.1/ubuntu-24.04.1-live-server-amd64.iso";
        is(
            &["casper/vmlinuz", "casper/initrd", iso],
            [
                "Ubuntu",
                "casper/vmlinuz",
                "casper/initrd",
                &format!("ip=dhcp url={url}"),
            ],
        );
        is(
            &["amd64/linux", "amd64/initrd", iso],
            [
                "Ubuntu",
                "amd64/linux",
                "amd64/initrd",
                &format!("root=/dev/ram0 ramdisk_size=1500000 ip=dhcp url={url}"),
            ],
        );
    }

    #[test]
    fn alpine() {
        let (kernel, initrd) = ("boot/vmlinuz-lts", "boot/initramfs-lts");
        let files = [
            kernel,
            initrd,
            "boot/modloop-lts",
            "apks/x86_64/APKINDEX.tar.gz",
        ];
        let modules = "ip=dhcp modules=loop,squashfs modloop=http://10.0.0.1/boot/modloop-lts";
        is(
            &files,
            [
                "Alpine",
                kernel,
                initrd,
                &format!("{modules} alpine_repo=http://10.0.0.1/apks"),
            ],
        );
        let mirror = "alpine_repo=http://dl-cdn.alpinelinux.org/alpine/latest-stable/main";
        is(
            &files[..3],
            ["Alpine", kernel, initrd, &format!("{modules} {mirror}")],
        );
        // Another flavour has its own files.
        assert!(made(&["boot/vmlinuz-virt", initrd, "boot/modloop-lts"]).is_empty());
    }

    #[test]
    fn arch_and_opensuse() {
        let kernel = "arch/boot/x86_64/vmlinuz-linux";
        let initrd = "arch/boot/x86_64/initramfs-linux.img";
        let options = "archisobasedir=arch archiso_http_srv=http://10.0.0.1/ ip=dhcp";
        for system in ["arch/x86_64/airootfs.sfs", "arch/x86_64/airootfs.erofs"] {
            is(
                &[kernel, initrd, system],
                ["Arch Linux", kernel, initrd, options],
            );
        }
        let (kernel, initrd) = ("boot/x86_64/loader/linux", "boot/x86_64/loader/initrd");
        is(
            &[kernel, initrd],
            [
                "openSUSE installer",
                kernel,
                initrd,
                "install=http://10.0.0.1/",
            ],
        );
    }

    #[test]
    fn fedora_coreos() {
        for kernel in ["live-kernel-x86_64", "live-kernel.x86_64"] {
            let name = |what: &str| format!("fedora-coreos-41.20241122.3.0-{what}");
            let names = [
                kernel,
                "live-initramfs.x86_64.img",
                "live-rootfs.x86_64.img",
            ]
            .map(name);
            let [kernel, initrd, system] = names.each_ref().map(String::as_str);
            let options = format!(
                "coreos.live.rootfs_url=http://10.0.0.1/{system} ignition.firstboot ignition.platform.id=metal"
            );
            let older = "fedora-coreos-40.20241006.3.0-live-rootfs.x86_64.img";
            is(
                &[kernel, initrd, system],
                ["Fedora CoreOS", kernel, initrd, &options],
            );
            assert!(
                made(&[kernel, initrd, older]).is_empty(),
                "of another version"
            );
            let options = options + " ignition.config.url=http://10.0.0.1/config.ign";
            is(
                &[kernel, initrd, system, "config.ign"],
                ["Fedora CoreOS", kernel, initrd, &options],
            );
        }
    }

    #[test]
    fn several_trees_each_in_its_folder() {
        let files = [
            "leap 15/boot/x86_64/loader/linux",
            "leap 15/boot/x86_64/loader/initrd",
            "a/b/boot/x86_64/loader/linux",
            "a/b/boot/x86_64/loader/initrd",
            "debian/debian-installer/amd64/linux",
            "debian/debian-installer/amd64/initrd.gz",
        ];
        let expected = [
            [
                "Debian installer (debian)",
                "debian/debian-installer/amd64/linux",
                "debian/debian-installer/amd64/initrd.gz",
                "",
            ],
            [
                "openSUSE installer (leap 15)",
                "leap%2015/boot/x86_64/loader/linux",
                "leap%2015/boot/x86_64/loader/initrd",
                "install=http://10.0.0.1/leap%2015/",
            ],
        ];
        assert_eq!(made(&files), expected);
        // Without HTTP, only what needs no URL.
        let without = entries(&served(&files).directory, None);
        assert_eq!(without.len(), 1);
        assert_eq!(without[0].title, expected[0][0]);
    }
}
