//! What the server gives up once it has its sockets, and that it still serves.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

mod namespace;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Write, stderr};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::Path;
use std::time::{Duration, Instant};

use namespace::{Clients, Served};
use wireboot_namespace::{inside, sh};
use wireboot_wire::testing::pe_image;

const NOBODY: u32 = 65534;
/// CAP_NET_BIND_SERVICE is number 10 (capabilities(7)).
const BINDS_LOW_PORTS: &str = "0000000000000400";
const NONE: &str = "0000000000000000";

/// Whether this is root, who can become nobody: in the namespace of an ordinary user there is nobody else.
fn can_become_nobody() -> bool {
    let map = fs::read_to_string("/proc/self/uid_map").unwrap();
    let count = |line: &str| line.split_whitespace().nth(2)?.parse::<u64>().ok();
    let users = map.lines().filter_map(count).sum::<u64>();
    users > 1 && fs::metadata("/proc/self").unwrap().uid() == 0
}

/// As `inside`, for a test of several users. Where there is one alone, the test is not run, and that is said on stderr itself: the harness
/// shows nothing of what a test prints that ends well.
fn inside_with_users(name: &str) -> bool {
    if can_become_nobody() {
        return inside(name);
    }
    let _ = writeln!(
        stderr(),
        "not run: {name}: it needs root, who can become nobody"
    );
    false
}

/// The value of a field of the file `status` of a process or a thread.
fn of_status(of: &Path, field: &str) -> String {
    let status = fs::read_to_string(of.join("status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field));
    line.unwrap_or_else(|| panic!("no {field} in {status}"))
        .trim()
        .replace('\t', " ")
}

/// The values that the threads of a server have in a field of `/proc/PID/task/ID/status`. The first thread is the test harness's.
fn of_all_threads(served: &Served, field: &str) -> BTreeSet<String> {
    let process = served.child.id().to_string();
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let tasks = tasks.map(Result::unwrap);
    let tasks = tasks.filter(|task| *task.file_name() != *process);
    tasks.map(|task| of_status(&task.path(), field)).collect()
}

/// Waits until it is so.
#[track_caller]
fn eventually(is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(
            Instant::now() < deadline,
            "it did not come to be so in 30 s"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn one(value: &str) -> BTreeSet<String> {
    BTreeSet::from([value.to_owned()])
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_server_keeps_no_rights_that_it_does_not_need() {
    if !inside("a_server_keeps_no_rights_that_it_does_not_need") {
        return;
    }
    let clients = Clients::new();
    let arguments = "--interface s0 --ra --address fd00:9::1/64 --range 10.9.0.200-10.9.0.200";
    let mut served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    let uid = if can_become_nobody() { NOBODY } else { 0 };
    let ids = [uid; 4].map(|id| id.to_string()).join(" ");
    // Where the server cannot become nobody, it stays in the groups that this test is in.
    let groups = match can_become_nobody() {
        true => NOBODY.to_string(),
        false => of_status(Path::new("/proc/self"), "Groups:"),
    };
    let is = |served: &Served, capabilities: &str| {
        // On a busy host a thread may come to life behind the word that all is ready.
        eventually(|| of_all_threads(served, "Name:").len() > 3);
        for (field, expected) in [
            ("Uid:", ids.as_str()),
            ("Gid:", &ids),
            ("Groups:", &groups),
            ("CapEff:", capabilities),
            ("CapPrm:", capabilities),
            ("CapInh:", NONE),
            ("CapAmb:", NONE),
            ("NoNewPrivs:", "1"),
            ("Seccomp:", "2"),
        ] {
            assert_eq!(of_all_threads(served, field), one(expected), "{field}");
        }
    };
    is(&served, BINDS_LOW_PORTS);
    let who = if uid == NOBODY {
        "user nobody, with"
    } else {
        "user 0 (cannot become nobody: "
    };
    served.wait_for(&format!("wireboot: running as {who}"));

    let (first, second) = ("02:00:00:00:00:08", "02:00:00:00:00:09");
    assert_eq!(clients.obtain(first).as_deref(), Some("10.9.0.200"));
    clients.run("ip address add 10.9.0.200/24 dev c0; ip address add fd00:9::9/64 dev c0 nodad");
    for url in [
        "http://10.9.0.1/linux",
        "tftp://10.9.0.1/linux",
        "http://[fd00:9::1]/linux",
        "tftp://[fd00:9::1]/linux",
    ] {
        assert_eq!(clients.run(&format!("curl -gsS {url}")), "linux", "{url}");
    }
    let made = served.directory.path().join("state/s0.leases");
    assert_eq!(fs::metadata(&made).unwrap().uid(), uid);
    clients.run("ip address flush dev c0");
    // Its leases are there again, and it can write them.
    for _ in 0..2 {
        served.end_and_start(arguments);
        served.wait_for("wireboot: ready");
        assert!(
            !served.log().contains("leases are not kept"),
            "{}",
            served.log()
        );
        assert!(clients.is_refused(second));
        assert_eq!(clients.obtain(first).as_deref(), Some("10.9.0.200"));
    }
    assert_eq!(served.end(), Some(0), "{}", served.log());
    assert!(!sh("ip address show dev s0").contains("fd00:9::1"));

    let served = Served::start("--interface s0 --no-dhcp");
    served.wait_for("wireboot: ready");
    is(&served, NONE);
}

#[test]
fn a_question_to_other_servers_can_still_be_asked() {
    if !inside("a_question_to_other_servers_can_still_be_asked") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.9.0.2/24 dev c0");
    let served = Served::start("--interface s0 --no-ipv6");
    served.wait_for("wireboot: giving addresses");
    assert!(
        !served.log().contains("could not be asked"),
        "{}",
        served.log()
    );
}

#[test]
fn only_the_served_files_can_be_opened() {
    if !inside("only_the_served_files_can_be_opened") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.9.0.2/24 dev c0");
    let elsewhere = tempfile::tempdir().unwrap();
    let folder = |name: &str| {
        let folder = elsewhere.path().join(name);
        fs::create_dir(&folder).unwrap();
        mode(&folder, 0o755);
        fs::write(folder.join("program"), name).unwrap();
        folder
    };
    mode(elsewhere.path(), 0o755);
    let (links, first, second) = (folder("links"), folder("first"), folder("second"));
    let link = links.join("boot.efi");
    symlink(first.join("program"), &link).unwrap();
    let arguments = format!("--interface s0 --authoritative --nbp {}", link.display());
    let served = Served::start(&arguments);
    served.wait_for("wireboot: ready");
    let program = "curl -sS -w %{http_code} http://10.9.0.1/wireboot.efi";
    assert_eq!(clients.run(program), "first200");
    // A new version in the place of the old one.
    fs::write(first.join("new"), "newer").unwrap();
    fs::rename(first.join("new"), first.join("program")).unwrap();
    assert_eq!(clients.run(program), "newer200");
    // Everybody may read this one.
    fs::remove_file(&link).unwrap();
    symlink(second.join("program"), &link).unwrap();
    let answer = clients.run(program);
    let lacks_it = "no Landlock (this kernel has none)";
    match served.log().contains(lacks_it) {
        true => assert_eq!(answer, "second200"),
        false => assert!(answer.ends_with("403"), "{answer}"),
    }
    drop(served);
    // Folders above that the user may not enter are no obstacle.
    mode(elsewhere.path(), 0o700);
    let program_here = second.join("program");
    let arguments = format!(
        "--interface s0 --authoritative --nbp {}",
        program_here.display()
    );
    let served = Served::start(&arguments);
    served.wait_for("wireboot: ready");
    assert_eq!(clients.run(program), "second200");
    let log = served.log();
    assert!(
        log.contains("Landlock, seccomp")
            || log.contains("Landlock in part (this kernel")
            || log.contains(lacks_it),
        "{log}"
    );
    assert!(
        !log.contains("no Landlock") || log.contains(lacks_it),
        "{log}"
    );
}

#[test]
fn a_file_that_the_user_may_not_read_is_refused_and_told_of() {
    if !inside("a_file_that_the_user_may_not_read_is_refused_and_told_of") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.9.0.2/24 dev c0");
    let mut served = Served::start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    let at = served.directory.path().to_owned();
    let denied = format!("warning: the server may not read {}", at.display());
    assert!(!served.log().contains(&denied), "{}", served.log());
    fs::create_dir(at.join("sub")).unwrap();
    fs::write(at.join("sub/other"), "").unwrap();
    fs::create_dir(at.join("lost+found")).unwrap();
    for name in ["initrd.gz", "sub/other", "lost+found"] {
        mode(&at.join(name), 0);
    }
    served.end_and_start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    served.wait_for(&format!("{denied}/initrd.gz and 1 more, and refuses it: "));
    assert_eq!(
        clients.run("curl -sS -o /dev/null -w %{http_code} http://10.9.0.1/initrd.gz"),
        "403"
    );
    let refused = clients.run("curl -sS tftp://10.9.0.1/initrd.gz 2>&1 || true");
    assert!(!refused.contains("initrd.gz"), "{refused}");
    served.wait_for("TFTP error    10.9.0.2 initrd.gz: the server may not read this file");
    assert_eq!(clients.run("curl -sS http://10.9.0.1/linux"), "linux");

    // What a boot needs is an error, and all else is not.
    let mut check = Served::start("--check");
    let at_check = check.directory.path().to_owned();
    fs::create_dir(at_check.join("lost+found")).unwrap();
    fs::write(at_check.join("notes"), "").unwrap();
    fs::write(at_check.join("wireboot.conf"), "title A\nlinux linux\n").unwrap();
    for name in ["wireboot.efi", "linux"] {
        fs::write(at_check.join(name), pe_image(0x8664, 10)).unwrap();
    }
    check.child.wait().unwrap();
    let mut check = |name: &str| {
        mode(&at_check.join(name), 0);
        check.kill_and_start("--check");
        let status = check.child.wait().unwrap();
        mode(&at_check.join(name), 0o755);
        (status.success(), check.log())
    };
    assert!(check("lost+found").0);
    assert!(check("notes").0);
    let (passed, log) = check("linux");
    assert!(!passed);
    let needed = "wireboot.conf, entry A: linux: the server may not read this file";
    assert!(log.contains(needed), "{log}");

    // The folder itself, and wireboot.efi.
    mode(&at, 0o700);
    served.end_and_start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    if can_become_nobody() {
        served.wait_for("error: wireboot.efi: the server may not read this file");
        served.wait_for("error: wireboot.conf: the server may not read this file");
        served.wait_for(&denied);
    }
}

#[test]
fn who_is_not_root_serves_as_who_they_are() {
    if !inside_with_users("who_is_not_root_serves_as_who_they_are") {
        return;
    }
    let clients = Clients::new();
    clients.run("ip address add 10.9.0.2/24 dev c0");
    let arguments = "--interface s0 --no-dhcp --no-tftp --http-port 8080";
    let mut served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    served.end_and_start_as(1234, arguments);
    served.wait_for("wireboot: running as user 1234, with ");
    served.wait_for("wireboot: ready");
    assert_eq!(of_all_threads(&served, "CapEff:"), one(NONE));
    assert_eq!(of_all_threads(&served, "Seccomp:"), one("2"));
    assert_eq!(clients.run("curl -sS http://10.9.0.1:8080/linux"), "linux");
    served.end_and_start_as(1234, &format!("{arguments} --user nobody"));
    assert!(!served.child.wait().unwrap().success());
    served.wait_for("--user nobody: only root can become another user");
}

#[test]
fn leases_are_kept_where_the_user_can_write() {
    if !inside_with_users("leases_are_kept_where_the_user_can_write") {
        return;
    }
    let clients = Clients::new();
    let state = tempfile::tempdir().unwrap();
    mode(state.path(), 0o755);
    // Somebody else's folder stays as it is.
    let path = state.path().join("leases");
    let arguments = format!(
        "--interface s0 --authoritative --range 10.9.0.200-10.9.0.200 --leases {}",
        path.display()
    );
    let mut served = Served::start(&arguments);
    served.wait_for("wireboot: ready");
    served.wait_for("leases are not kept");
    assert_eq!(fs::metadata(state.path()).unwrap().uid(), 0);
    // As root, they are kept there.
    served.end_and_start(&format!("{arguments} --user root"));
    served.wait_for("wireboot: ready");
    assert!(
        !served.log().contains("leases are not kept"),
        "{}",
        served.log()
    );
    assert_eq!(of_all_threads(&served, "CapEff:"), one(BINDS_LOW_PORTS));
    assert_eq!(fs::metadata(&path).unwrap().uid(), 0);
    // Leases are known where they cannot be kept.
    let (first, second) = ("02:00:00:00:00:08", "02:00:00:00:00:09");
    assert_eq!(clients.obtain(first).as_deref(), Some("10.9.0.200"));
    mode(&path, 0o600);
    served.end_and_start(&arguments);
    served.wait_for("wireboot: ready");
    served.wait_for("leases are not kept");
    assert!(clients.is_refused(second));
    assert_eq!(clients.obtain(first).as_deref(), Some("10.9.0.200"));
    let mut served = Served::start("--user nobody-of-this-name");
    assert!(!served.child.wait().unwrap().success());
    served.wait_for("--user nobody-of-this-name: there is no such user");
}

#[test]
fn a_file_of_leases_may_be_named_from_where_the_server_was_started() {
    if !inside("a_file_of_leases_may_be_named_from_where_the_server_was_started") {
        return;
    }
    let clients = Clients::new();
    let arguments = "--interface s0 --authoritative --user root --leases lan.leases";
    let served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    assert!(clients.obtain("02:00:00:00:00:08").is_some());
    let log = served.log();
    assert!(!log.contains("leases are not kept"), "{log}");
    let kept = fs::read_to_string(served.directory.path().join("lan.leases")).unwrap();
    assert!(kept.contains("020000000008"), "{kept}");
}

#[test]
fn the_folder_of_leases_is_made_for_every_user() {
    if !inside_with_users("the_folder_of_leases_is_made_for_every_user") {
        return;
    }
    let _clients = Clients::new();
    fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0").unwrap();
    let state = tempfile::tempdir().unwrap();
    chown(state.path(), Some(1234), Some(1234)).unwrap();
    let path = state.path().join("made/new/leases");
    let mut served = Served::start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    let arguments = "--interface s0 --authoritative --leases";
    served.end_and_start_as(1234, &format!("{arguments} {}", path.display()));
    served.wait_for("wireboot: ready");
    let log = served.log();
    assert!(!log.contains("leases are not kept"), "{log}");
    assert_eq!(fs::metadata(&path).unwrap().uid(), 1234);
    // Where it cannot be made, that is told.
    let path = served.directory.path().join("none/leases");
    served.end_and_start_as(1234, &format!("{arguments} {}", path.display()));
    served.wait_for("wireboot: ready");
    served.wait_for(&format!("the folder of {}: ", path.display()));
    served.wait_for("leases are not kept");
}

#[test]
fn leases_are_kept_whoever_the_server_was_before() {
    if !inside_with_users("leases_are_kept_whoever_the_server_was_before") {
        return;
    }
    let _clients = Clients::new();
    let arguments = "--interface s0 --authoritative";
    let mut served = Served::start(arguments);
    served.wait_for("wireboot: ready");
    let state = served.directory.path().join("state");
    let file = state.join("s0.leases");
    for (user, uid) in [("root", 0), ("nobody", NOBODY)] {
        served.end_and_start(&format!("{arguments} --user {user}"));
        served.wait_for("wireboot: ready");
        let log = served.log();
        assert!(!log.contains("leases are not kept"), "{log}");
        let owners = [&state, &file].map(|path| fs::metadata(path).unwrap().uid());
        assert_eq!(owners, [uid; 2]);
    }
    // Root's file of before, and what a server that was killed left, in a folder that is nobody's.
    assert_eq!(served.end(), Some(0));
    let left = state.join("s0.leases.new");
    for file in [&file, &left] {
        fs::write(file, "").unwrap();
        chown(file, Some(0), Some(0)).unwrap();
        mode(file, 0o600);
    }
    served.kill_and_start(arguments);
    served.wait_for("wireboot: ready");
    let log = served.log();
    assert!(!log.contains("leases are not kept"), "{log}");
    assert_eq!(fs::metadata(&file).unwrap().uid(), NOBODY);
}

#[test]
fn servers_of_different_users_do_not_share_a_folder_of_leases() {
    if !inside_with_users("servers_of_different_users_do_not_share_a_folder_of_leases") {
        return;
    }
    let _clients = Clients::new();
    sh("ip link add s1 type veth peer name s2; ip link set s1 up; ip link set s2 up");
    sh("ip address add 10.10.0.1/24 dev s1");
    let served = Served::start("--interface s0 --authoritative");
    served.wait_for("wireboot: ready");
    let beside = "--interface s1 --authoritative --no-ipv6";
    let mut another = served.start_beside(&format!("{beside} --user root"));
    assert_eq!(another.ended(), Some(1), "{}", another.log());
    another.wait_for("runs as another user, keeps its leases in the folder of ");
    let state = served.directory.path().join("state");
    assert_eq!(fs::metadata(&state).unwrap().uid(), NOBODY);
    let elsewhere = another.directory.path().join("leases/file");
    for arguments in [
        beside.to_owned(),
        format!("{beside} --user root --leases {}", elsewhere.display()),
    ] {
        let mut another = served.start_beside(&arguments);
        another.wait_for("wireboot: ready");
        let log = another.log();
        assert!(!log.contains("leases are not kept"), "{log}");
        assert_eq!(another.end(), Some(0), "{}", another.log());
    }
}
