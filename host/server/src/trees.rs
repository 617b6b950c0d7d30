//! What distributions publish for network boots and on their media, known by the names of files, with the kernel options that their
//! installers need to find the rest over HTTP.

use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use wireboot_wire::bootconf::{Entry, File, Program};

use crate::folder::Folder;

/// Bytes of a file name that mean something else in a URL's path.
const NOT_IN_A_PATH: &AsciiSet = &CONTROLS
    .add(b' ')
    .add(b'"')
    .add(b'#')
    .add(b'%')
    .add(b'<')
    .add(b'>')
    .add(b'?')
    .add(b'`');

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
    network: Network,
}

/// What the initial RAM disk can do on the network.
#[derive(Clone, Copy)]
enum Network {
    /// It asks for an address by the IP version that it is told to, or by both.
    Both,
    /// It asks for an address by IPv4 only.
    Ipv4,
    /// It does not find its files over the network. Why, and what to serve instead.
    Unable(&'static str),
}

/// In [`Tree::needs`]: the ISO file that the tree is from.
const ISO: &str = "*.iso";
/// The ISO file's name has one of these words. Kubuntu and the like have the first one.
const ISO_WORDS: [&str; 3] = ["ubuntu", "live-server", "desktop"];

/// Of those with the same kernel, the first one whose files are there counts.
const TREES: &[Tree] = &[
    // https://wiki.debian.org/PXEBootInstall: netboot.tar.gz
    Tree {
        title: "Debian installer",
        kernel: "debian-installer/amd64/linux",
        initrd: "debian-installer/amd64/initrd.gz",
        needs: &[],
        options: "",
        network: Network::Both,
    },
    // A CD
    Tree {
        title: "Debian installer",
        kernel: "install.amd/vmlinuz",
        initrd: "install.amd/initrd.gz",
        needs: &[],
        options: "",
        network: Network::Unable(
            "this installer looks for the CD that it is from in the machine itself; unpack netboot.tar.gz of the same release instead",
        ),
    },
    // live-boot(7): a live CD
    Tree {
        title: "Debian live",
        kernel: "live/vmlinuz",
        initrd: "live/initrd.img",
        needs: &["live/filesystem.squashfs"],
        options: "boot=live components ip=dhcp fetch={1}",
        network: Network::Ipv4,
    },
    Tree {
        title: "Debian live",
        kernel: "live/vmlinuz-*",
        initrd: "live/initrd.img-*",
        needs: &["live/filesystem.squashfs"],
        options: "boot=live components ip=dhcp fetch={1}",
        network: Network::Ipv4,
    },
    // Anaconda's boot options: a mirror or DVD, a network installation medium, a live medium; also of CentOS, RHEL, Alma and Rocky
    Tree {
        title: "Fedora installer",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["repodata/repomd.xml"],
        options: "ip=dhcp inst.repo={}",
        network: Network::Both,
    },
    Tree {
        title: "Fedora installer",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["BaseOS/repodata/repomd.xml"],
        options: "ip=dhcp inst.repo={}",
        network: Network::Both,
    },
    Tree {
        title: "Fedora installer",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["images/install.img"],
        options: "ip=dhcp inst.stage2={}",
        network: Network::Both,
    },
    Tree {
        title: "Fedora live",
        kernel: "images/pxeboot/vmlinuz",
        initrd: "images/pxeboot/initrd.img",
        needs: &["LiveOS/squashfs.img"],
        options: "ip=dhcp root=live:{1} rd.live.image",
        network: Network::Both,
    },
    // Ubuntu Server, "netboot the live server installer": the medium with its image beside it, or the netboot archive. cloud-init
    // takes `url=` for its own, and loads the image once more, unless it has `cloud-config-url=`.
    Tree {
        title: "Ubuntu",
        kernel: "casper/vmlinuz",
        initrd: "casper/initrd",
        needs: &[ISO],
        options: "ip=dhcp url={1} cloud-config-url=/dev/null",
        network: Network::Ipv4,
    },
    Tree {
        title: "Ubuntu",
        kernel: "amd64/linux",
        initrd: "amd64/initrd",
        needs: &[ISO],
        options: "root=/dev/ram0 ramdisk_size=1500000 ip=dhcp url={1} cloud-config-url=/dev/null",
        network: Network::Ipv4,
    },
    // Alpine's "PXE boot": a medium, which has packages, and the netboot archive
    Tree {
        title: "Alpine",
        kernel: "boot/vmlinuz-*",
        initrd: "boot/initramfs-*",
        needs: &["apks/x86_64/APKINDEX.tar.gz"],
        options: "",
        network: Network::Unable(
            "a medium's initramfs has no network drivers but those of virtual machines; unpack the alpine-netboot archive of the same release into a folder of its own instead",
        ),
    },
    Tree {
        title: "Alpine",
        kernel: "boot/vmlinuz-*",
        initrd: "boot/initramfs-*",
        needs: &["boot/modloop-*"],
        options: "ip=dhcp modules=loop,squashfs modloop={1} alpine_repo=http://dl-cdn.alpinelinux.org/alpine/latest-stable/main",
        network: Network::Ipv4,
    },
    // mkinitcpio-archiso, docs/README.bootparams
    Tree {
        title: "Arch Linux",
        kernel: "arch/boot/x86_64/vmlinuz-linux",
        initrd: "arch/boot/x86_64/initramfs-linux.img",
        needs: &["arch/x86_64/airootfs.*"],
        options: "archisobasedir=arch archiso_http_srv={} ip=dhcp",
        network: Network::Ipv4,
    },
    // KIWI, "Booting a Live ISO Image from Network": Fedora's live media since 42, openSUSE's, the installers of Leap 16 and SLE 16
    Tree {
        title: "openSUSE or Fedora live",
        kernel: "boot/x86_64/loader/linux",
        initrd: "boot/x86_64/loader/initrd",
        needs: &["LiveOS/squashfs.img"],
        options: "ip=dhcp root=live:{1} rd.live.image",
        network: Network::Both,
    },
    // linuxrc's parameter reference; `root` is the installation system, which the network medium lacks
    Tree {
        title: "openSUSE installer",
        kernel: "boot/x86_64/loader/linux",
        initrd: "boot/x86_64/loader/initrd",
        needs: &["boot/x86_64/root"],
        options: "install={}",
        network: Network::Both,
    },
    // Fedora CoreOS, "Live ISO and PXE image reference"; the kernel's name has had both forms
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel-x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img", "config.ign"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal ignition.config.url={2}",
        network: Network::Both,
    },
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel-x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal",
        network: Network::Both,
    },
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel.x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img", "config.ign"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal ignition.config.url={2}",
        network: Network::Both,
    },
    Tree {
        title: "Fedora CoreOS",
        kernel: "fedora-coreos-*-live-kernel.x86_64",
        initrd: "fedora-coreos-*-live-initramfs.x86_64.img",
        needs: &["fedora-coreos-*-live-rootfs.x86_64.img"],
        options: "coreos.live.rootfs_url={1} ignition.firstboot ignition.platform.id=metal",
        network: Network::Both,
    },
];

/// A tree's kernel, with the entry or why there is none.
struct Found {
    kernel: String,
    entry: Result<Entry, String>,
}

/// An entry for each kernel of a tree, in the directory or a folder of it. `url`: where machines reach the directory by HTTP, with a slash at the
/// end; without it, only what needs no URL.
pub(crate) fn entries(directory: &Folder, url: Option<&str>) -> Vec<Entry> {
    let found = found(directory, url).into_iter();
    found.filter_map(|one| one.entry.ok()).collect()
}

/// Why trees get no entry, and what to do.
pub(crate) fn remarks(directory: &Folder, url: Option<&str>) -> Vec<String> {
    let found = found(directory, url).into_iter();
    let remark = |one: Found| {
        let why = one.entry.err()?;
        Some(format!("{}: no entry is made for it: {why}", one.kernel))
    };
    found.filter_map(remark).collect()
}

fn found(directory: &Folder, url: Option<&str>) -> Vec<Found> {
    let mut found: Vec<Found> = Vec::new();
    for folder in folders(directory) {
        for tree in TREES {
            for (kernel, text) in matches(directory, &folder, tree.kernel) {
                if found.iter().any(|one| one.kernel == kernel) {
                    continue;
                }
                let entry = entry(directory, url, &folder, tree, &kernel, text.as_deref());
                found.extend(entry.map(|entry| Found { kernel, entry }));
            }
        }
    }
    found
}

/// The directory itself and the folders in it, with a slash at the end.
fn folders(directory: &Folder) -> Vec<String> {
    let entries = directory.entries("").unwrap_or_default();
    let inner = entries.into_iter().filter(|entry| entry.is_folder);
    let inner = inner
        .map(|entry| entry.name + "/")
        .filter(|name| !name.contains(char::is_control));
    let this = std::iter::once(String::new());
    this.chain(inner.take(FOLDERS)).collect()
}

/// `None` when files are missing, or the URL.
fn entry(
    directory: &Folder,
    url: Option<&str>,
    folder: &str,
    tree: &Tree,
    kernel: &str,
    text: Option<&str>,
) -> Option<Result<Entry, String>> {
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
    let mut options = tree.options.to_owned();
    let url = match options.contains('{') {
        true => url?,
        false => "",
    };
    let mut needs = Vec::new();
    for name in tree.needs {
        needs.push(match *name {
            ISO => match iso(directory, folder) {
                Ok(name) => name,
                Err(why) => return Some(Err(why)),
            },
            name => find(name)?,
        });
    }
    let is_ipv6 = url.contains("//[");
    match tree.network {
        Network::Unable(why) => return Some(Err(why.to_owned())),
        Network::Ipv4 if is_ipv6 => {
            let why = "its initial RAM disk asks for an address by IPv4 only, and this server has none to be reached at; give its interface one";
            return Some(Err(why.to_owned()));
        }
        // dracut.cmdline(7)
        Network::Both if is_ipv6 => options = options.replace("ip=dhcp", "ip=dhcp6"),
        _ => {}
    }
    options = options.replace("{}", &format!("{url}{}", encoded(folder)));
    for (number, name) in needs.iter().enumerate() {
        options = options.replace(&format!("{{{}}}", number + 1), &format!("{url}{name}"));
    }
    let title = match folder.strip_suffix('/') {
        None => tree.title.to_owned(),
        Some(folder) => format!("{} ({folder})", tree.title),
    };
    Some(Ok(Entry {
        title,
        program: Program::Linux(file(encoded(kernel))),
        initrd: vec![file(initrd)],
        options,
        settings: Vec::new(),
    }))
}

/// The ISO file that a tree is from, or what to do about it.
fn iso(directory: &Folder, folder: &str) -> Result<String, String> {
    let fits = |(name, _): &(String, _)| {
        let name = name[folder.len()..].to_lowercase();
        ISO_WORDS.iter().any(|word| name.contains(word))
    };
    let files = matches(directory, folder, ISO).into_iter();
    let files: Vec<(String, _)> = files.filter(fits).collect();
    let at = match folder {
        "" => "the served directory",
        folder => folder,
    };
    let words = ISO_WORDS.join(" or ");
    match &files[..] {
        [(name, _)] => Ok(encoded(name)),
        [] => Err(format!(
            "put the ISO file that it is from into {at}, under a name that ends in .iso and has {words} in it"
        )),
        _ => Err(format!(
            "several files in {at} may be the ISO file that it is from; leave one whose name has {words} in it"
        )),
    }
}

/// Files of a name that may have a `*`, sorted, and what that stands for.
fn matches(directory: &Folder, folder: &str, name: &str) -> Vec<(String, Option<String>)> {
    let path = format!("{folder}{name}");
    let holds = |path: &str| directory.serves(path);
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

/// A path as it stands in a URL.
pub(crate) fn encoded(path: &str) -> String {
    utf8_percent_encode(path, NOT_IN_A_PATH).to_string()
}

pub(crate) fn file(url: String) -> File {
    File { url, sha256: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Program::Linux;

    struct Served {
        directory: Folder,
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
            directory: Folder::open(folder.path()).unwrap(),
            _folder: folder,
        }
    }

    #[test]
    fn a_star_stands_for_something_that_can_be_shown() {
        let served = served(&["vmlinuz-6.1", "vmlinuz-", "vmlinuz-a\u{1b}b", "other"]);
        let found = matches(&served.directory, "", "vmlinuz-*");
        assert_eq!(found, [("vmlinuz-6.1".to_owned(), Some("6.1".to_owned()))]);
        let other = [("other".to_owned(), None)];
        assert_eq!(matches(&served.directory, "", "other"), other);
    }

    const IPV4: &str = "http://10.0.0.1/";
    const IPV6: &str = "http://[fd00::1]:8080/";

    /// Title, kernel, RAM disk and options of each entry.
    fn made(files: &[&str]) -> Vec<[String; 4]> {
        made_at(IPV4, files)
    }

    fn made_at(url: &str, files: &[&str]) -> Vec<[String; 4]> {
        let entries = entries(&served(files).directory, Some(url));
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

    /// No entry is made of the files, but a remark for each of the kernels, with the words.
    #[track_caller]
    fn is_told(url: &str, files: &[&str], kernels: &[&str], words: &[&str]) {
        assert_eq!(made_at(url, files), [[""; 4]; 0]);
        let remarks = remarks(&served(files).directory, Some(url));
        assert_eq!(remarks.len(), kernels.len(), "{remarks:?}");
        for (remark, kernel) in remarks.iter().zip(kernels) {
            assert!(remark.starts_with(&format!("{kernel}: ")), "{remark}");
            for word in words {
                assert!(remark.contains(word), "{word}: {remark}");
            }
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
        let cd = [
            "install.amd/vmlinuz",
            "install.amd/initrd.gz",
            "12/install.amd/vmlinuz",
            "12/install.amd/initrd.gz",
        ];
        let kernels = ["install.amd/vmlinuz", "12/install.amd/vmlinuz"];
        is_told(IPV4, &cd, &kernels, &["netboot.tar.gz"]);
        let without_http = remarks(&served(&cd).directory, None);
        assert_eq!(without_http.len(), 2, "{without_http:?}");
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
                &format!("ip=dhcp url={url} cloud-config-url=/dev/null"),
            ],
        );
        is(
            &["amd64/linux", "amd64/initrd", iso],
            [
                "Ubuntu",
                "amd64/linux",
                "amd64/initrd",
                &format!(
                    "root=/dev/ram0 ramdisk_size=1500000 ip=dhcp url={url} cloud-config-url=/dev/null"
                ),
            ],
        );
    }

    #[test]
    fn ubuntus_medium_is_known_among_others() {
        let (kernel, initrd) = ("u/casper/vmlinuz", "u/casper/initrd");
        for iso in [
            "Ubuntu-24.04.iso",
            "kubuntu.iso",
            "noble-live-server-amd64.iso",
            "noble-desktop-amd64.iso",
        ] {
            let iso = format!("u/{iso}");
            let others = ["u/debian-12.iso", "u/zfs.iso", "u/ubuntu.txt", "ubuntu.iso"];
            let files = [&[kernel, initrd, &iso], &others[..]].concat();
            let options = format!("ip=dhcp url=http://10.0.0.1/{iso} cloud-config-url=/dev/null");
            let entry = ["Ubuntu (u)", kernel, initrd, &options];
            assert_eq!(made(&files), [entry]);
            assert_eq!(remarks(&served(&files).directory, Some(IPV4)), [""; 0]);
        }
        let told = |files: &[&str], words| is_told(IPV4, files, &files[..1], words);
        // A folder's name does not tell what a file in it is.
        let files = [
            "ubuntu/casper/vmlinuz",
            "ubuntu/casper/initrd",
            "ubuntu/zfs.iso",
        ];
        told(&files, &["into ubuntu/", "live-server or desktop"]);
        told(
            &["amd64/linux", "amd64/initrd"],
            &["into the served directory"],
        );
        let two = ["ubuntu-24.04-live-server.iso", "ubuntu-24.04-desktop.iso"];
        let files = [&["casper/vmlinuz", "casper/initrd"], &two[..]].concat();
        told(&files, &["several"]);
        // Without HTTP, no ISO file helps.
        assert_eq!(remarks(&served(&files).directory, None), [""; 0]);
    }

    #[test]
    fn over_ipv6_dracut_asks_by_dhcpv6_and_others_get_no_entry() {
        let (kernel, initrd) = (
            "ip=dhcp/images/pxeboot/vmlinuz",
            "ip=dhcp/images/pxeboot/initrd.img",
        );
        for (marker, option) in [
            (
                "repodata/repomd.xml",
                "inst.repo=http://[fd00::1]:8080/ip=dhcp/",
            ),
            (
                "BaseOS/repodata/repomd.xml",
                "inst.repo=http://[fd00::1]:8080/ip=dhcp/",
            ),
            (
                "images/install.img",
                "inst.stage2=http://[fd00::1]:8080/ip=dhcp/",
            ),
            (
                "LiveOS/squashfs.img",
                "root=live:http://[fd00::1]:8080/ip=dhcp/LiveOS/squashfs.img rd.live.image",
            ),
        ] {
            let made = made_at(IPV6, &[kernel, initrd, &format!("ip=dhcp/{marker}")]);
            assert_eq!(made.len(), 1, "{marker}");
            assert_eq!(made[0][3], format!("ip=dhcp6 {option}"));
        }
        let (kernel, initrd) = ("boot/x86_64/loader/linux", "boot/x86_64/loader/initrd");
        let squashfs = "LiveOS/squashfs.img";
        let options = &made_at(IPV6, &[kernel, initrd, squashfs])[0][3];
        assert!(options.starts_with("ip=dhcp6 root=live:"), "{options}");
        let options = &made_at(IPV6, &[kernel, initrd, "boot/x86_64/root"])[0][3];
        assert_eq!(options, "install=http://[fd00::1]:8080/");

        let squashfs = "live/filesystem.squashfs";
        let airootfs = "arch/x86_64/airootfs.sfs";
        for files in [
            ["live/vmlinuz", "live/initrd.img", squashfs],
            ["live/vmlinuz-6.1", "live/initrd.img-6.1", squashfs],
            ["casper/vmlinuz", "casper/initrd", "ubuntu.iso"],
            ["amd64/linux", "amd64/initrd", "ubuntu.iso"],
            ["boot/vmlinuz-lts", "boot/initramfs-lts", "boot/modloop-lts"],
            [
                "arch/boot/x86_64/vmlinuz-linux",
                "arch/boot/x86_64/initramfs-linux.img",
                airootfs,
            ],
        ] {
            is_told(IPV6, &files, &files[..1], &["IPv4 only"]);
            assert_eq!(made(&files).len(), 1, "{files:?}");
            assert_eq!(remarks(&served(&files).directory, Some(IPV4)), [""; 0]);
        }
    }

    #[test]
    fn alpine() {
        let (kernel, initrd) = ("boot/vmlinuz-lts", "boot/initramfs-lts");
        let files = [kernel, initrd, "boot/modloop-lts"];
        let options = "ip=dhcp modules=loop,squashfs modloop=http://10.0.0.1/boot/modloop-lts alpine_repo=http://dl-cdn.alpinelinux.org/alpine/latest-stable/main";
        is(&files, ["Alpine", kernel, initrd, options]);
        // A medium.
        let files = [&files[..], &["apks/x86_64/APKINDEX.tar.gz"]].concat();
        for url in [IPV4, IPV6] {
            is_told(url, &files, &[kernel], &["alpine-netboot"]);
        }
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
            &[kernel, initrd, "boot/x86_64/root"],
            [
                "openSUSE installer",
                kernel,
                initrd,
                "install=http://10.0.0.1/",
            ],
        );
        let options = "ip=dhcp root=live:http://10.0.0.1/LiveOS/squashfs.img rd.live.image";
        is(
            &[kernel, initrd, "LiveOS/squashfs.img"],
            ["openSUSE or Fedora live", kernel, initrd, options],
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
            "leap 15/boot/x86_64/root",
            "a/b/boot/x86_64/loader/linux",
            "a/b/boot/x86_64/loader/initrd",
            "a/b/boot/x86_64/root",
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
