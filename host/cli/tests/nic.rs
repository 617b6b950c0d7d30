//! `wireboot nic` by its program: monitors good and bad, refusals, its end.
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "what tests share"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::thread;

use tempfile::TempDir;

fn wireboot(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_wireboot"));
    command.arg("nic").args(arguments);
    command
}

/// A card before nothing.
struct Card {
    child: Child,
    log: BufReader<ChildStderr>,
    folder: TempDir,
}

impl Card {
    fn start() -> Self {
        Self::start_with("all")
    }

    fn start_with(offload: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut command = wireboot(&["run", "--wire", "none", "--offload", offload]);
        command.arg("--stats").arg(folder.path().join("stats"));
        Self::launch(command, folder)
    }

    /// Starts a command for a card, which has everything but its socket: `card` in the folder.
    fn launch(mut command: Command, folder: TempDir) -> Self {
        command.arg("--socket").arg(folder.path().join("card"));
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let log = BufReader::new(child.stderr.take().unwrap());
        let mut card = Self { child, log, folder };
        card.says("waiting for a monitor");
        card
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("card")
    }

    /// Waits until it says so.
    fn says(&mut self, text: &str) {
        loop {
            let mut line = String::new();
            let len = self.log.read_line(&mut line).unwrap();
            assert!(len > 0, "it did not say {text:?}");
            if line.contains(text) {
                return;
            }
        }
    }

    fn monitor(&mut self) -> UnixStream {
        let monitor = UnixStream::connect(self.socket()).unwrap();
        self.says("a monitor has connected");
        monitor
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn message(request: u32, flags: u32, payload: &[u8]) -> Vec<u8> {
    let words = [request, 1 | flags, payload.len() as u32];
    let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    bytes.extend(payload);
    bytes
}

/// Asks for the features.
fn features(monitor: &mut UnixStream) -> u64 {
    monitor.write_all(&message(1, 0, &[])).unwrap();
    let mut reply = [0; 20];
    monitor.read_exact(&mut reply).unwrap();
    assert_eq!(reply[..12], [1, 0, 0, 0, 5, 0, 0, 0, 8, 0, 0, 0]);
    u64::from_le_bytes(reply[12..].try_into().unwrap())
}

fn answers(monitor: &mut UnixStream) {
    // VERSION_1 and the protocol features.
    let needed = 1 << 32 | 1 << 30;
    assert_eq!(features(monitor) & needed, needed);
}

fn is_closed(monitor: &mut UnixStream) {
    let mut rest = Vec::new();
    // A reset is an end, too.
    let _ = monitor.read_to_end(&mut rest);
}

#[test]
fn a_broken_message_ends_the_connection_and_not_the_card() {
    let mut card = Card::start();
    let mut broken = card.monitor();
    broken.write_all(&[0xff; 12]).unwrap();
    card.says("another version of vhost-user; waiting for the next one");
    is_closed(&mut broken);
    answers(&mut card.monitor());
}

#[test]
fn a_monitor_that_shares_no_memory_is_told_how() {
    let mut card = Card::start();
    let mut monitor = card.monitor();
    // The protocol feature by which the monitor learns it, too.
    monitor
        .write_all(&message(16, 0, &[8, 0, 0, 0, 0, 0, 0, 0]))
        .unwrap();
    monitor.write_all(&message(5, 8, &[0; 8])).unwrap();
    card.says("start QEMU with memory-backend-memfd,share=on");
    let mut reply = [0; 20];
    monitor.read_exact(&mut reply).unwrap();
    assert_eq!(reply[12..], [1, 0, 0, 0, 0, 0, 0, 0]);
    is_closed(&mut monitor);
}

#[test]
fn a_monitor_that_sends_no_memory_is_told_of() {
    let mut card = Card::start();
    let mut monitor = card.monitor();
    let features = 1u64 << 32;
    monitor
        .write_all(&message(2, 0, &features.to_le_bytes()))
        .unwrap();
    card.says("start QEMU with memory-backend-memfd,share=on");
    answers(&mut monitor);
}

#[test]
fn a_second_monitor_is_refused() {
    let mut card = Card::start();
    let mut first = card.monitor();
    let mut second = UnixStream::connect(card.socket()).unwrap();
    card.says("a second monitor was refused");
    is_closed(&mut second);
    answers(&mut first);
    drop(first);
    card.says("the monitor has closed the connection");
    answers(&mut card.monitor());
}

#[test]
fn a_signal_ends_it_well() {
    let mut card = Card::start();
    let _monitor = card.monitor();
    let id = card.child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    assert_eq!(card.child.wait().unwrap().code(), Some(0));
    assert!(!card.socket().exists());
    let counters = fs::read_to_string(card.folder.path().join("stats")).unwrap();
    let counters: serde_json::Value = serde_json::from_str(&counters).unwrap();
    assert_eq!(counters["sent_units"], 0);
}

#[test]
fn offloads_are_offered_as_the_user_says() {
    // CSUM, GUEST_CSUM, and from GUEST_TSO4 to HOST_UFO.
    let offloads = 0b11 | 0xff << 7;
    for (offload, offered) in [
        ("all", offloads),
        ("none", 0),
        ("guest_tso4", 1 << 7 | 1 << 1),
        ("csum,host_ufo", 1 << 14 | 1),
    ] {
        let mut card = Card::start_with(offload);
        let features = features(&mut card.monitor());
        assert_eq!(features & offloads, offered, "{offload}");
    }
}

fn refused(output: &Output, code: i32, text: &str) {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(errors.contains(text), "{errors}");
}

#[test]
fn what_cannot_be_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "precious").unwrap();
    let run = |socket: &Path, wire: &str| {
        let mut command = wireboot(&["run", "--wire", wire, "--socket"]);
        command.arg(socket).output().unwrap()
    };
    let free = folder.path().join("card");
    refused(&run(&file, "none"), 1, "is no socket");
    refused(&run(&free, "tap=nosuch0"), 1, "ip tuntap add dev nosuch0");
    refused(&run(&free, "packet=a/b"), 1, "no name of an interface");
    refused(
        &run(&free, "cable"),
        2,
        "a wire is tap=NAME, packet=IF, serve=DIR, card, dgram=PATH,remote=PATH or none",
    );
    for (option, value, text) in [
        (
            "--offload",
            "csum,tso",
            "\"tso\" is no offload: all, none, or a list of csum,",
        ),
        ("--chunk", "frames=1", "a number from 2 to 1024"),
        ("--bus", "isa", "a bus is pci32-33, "),
        ("--line", "1g,delay=x", "milliseconds"),
        ("--line", "100g,delay=1000", "bytes would be on the line"),
        (
            "--fault",
            "late,later",
            "\"later\" is no fault: used-index, ",
        ),
    ] {
        let mut command = wireboot(&["run", "--wire", "none", option, value, "--socket"]);
        refused(&command.arg(&free).output().unwrap(), 2, text);
    }
    let queues = free.display().to_string() + ",queues=";
    let run_queues = |n: &str, wire: &str| run(Path::new(&(queues.clone() + n)), wire);
    refused(&run_queues("9", "none"), 2, "queues=N, 1 to 8");
    let server = format!("serve={}", folder.path().display());
    refused(&run_queues("2", &server), 1, "leave out queues=2");
    refused(&run(&free, "card"), 1, "give it another --socket");
    let dgram = format!("dgram={},remote=x", file.display());
    refused(&run(&free, &dgram), 1, "is no socket");
    let mut command = wireboot(&["run", "--wire", "none", "--bus", "pci32-33", "--socket"]);
    let output = command.arg(queues.clone() + "2").output().unwrap();
    refused(&output, 1, "or --bus and --line");
    assert!(!free.exists());
    let card = Card::start();
    refused(
        &run(&card.socket(), "none"),
        1,
        "another process listens there",
    );
}

#[test]
fn a_server_in_the_card_tells_how_a_machine_is_attached() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("wireboot.efi"), "MZ").unwrap();
    let mut child = wireboot(&["serve"])
        .arg(folder.path())
        .env("XDG_RUNTIME_DIR", folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    output.read_line(&mut line).unwrap();
    let socket = folder.path().join("wireboot-card");
    assert!(
        line.contains(&format!("path={},", socket.display())),
        "{line}"
    );
    assert!(
        line.contains("vhost-user") && line.contains("share=on"),
        "{line}"
    );
    answers(&mut UnixStream::connect(&socket).unwrap());
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    refused(&output, 0, "wireboot.efi");
    assert!(!socket.exists());
}

/// What the threads of a process have in this field of `/proc/PID/task/ID/status`.
fn of_all_threads(process: u32, field: &str) -> BTreeSet<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let value = |task: fs::DirEntry| {
        let status = fs::read_to_string(task.path().join("status")).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field));
        line.unwrap().trim().to_owned()
    };
    tasks.map(Result::unwrap).map(value).collect()
}

#[test]
fn a_server_in_the_card_keeps_no_rights_that_it_does_not_need() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, state) = (folder.path().join("dir"), folder.path().join("state"));
    for made in [&dir, &state] {
        fs::create_dir(made).unwrap();
    }
    fs::write(dir.join("wireboot.efi"), "MZ").unwrap();
    let mut command = wireboot(&["serve"]);
    command.arg(&dir);
    command.arg("--stats").arg(state.join("stats"));
    command.arg("--pcap").arg(state.join("pcap"));
    let mut card = Card::launch(command, folder);
    let _monitor = card.monitor();
    let id = card.child.id();
    for (field, expected) in [
        ("CapEff:", "0000000000000000"),
        ("CapPrm:", "0000000000000000"),
        ("NoNewPrivs:", "1"),
        ("Seccomp:", "2"),
    ] {
        let values = of_all_threads(id, field);
        assert_eq!(values, BTreeSet::from([expected.to_owned()]), "{field}");
    }
    let threads = fs::read_dir(format!("/proc/{id}/task")).unwrap().count();
    assert!(threads >= 4, "{threads}");
    // It writes its counters, and takes its socket away.
    fs::remove_file(state.join("stats")).unwrap();
    while !state.join("stats").exists() {
        thread::yield_now();
    }
    let killed = Command::new("kill")
        .args(["-INT", &id.to_string()])
        .status();
    assert!(killed.unwrap().success());
    assert_eq!(card.child.wait().unwrap().code(), Some(0));
    assert!(!card.socket().exists());
}

/// Each has its socket, its arguments and its counters, and none notices another's end.
#[test]
fn several_machines_have_a_port_each() {
    let folder = tempfile::tempdir().unwrap();
    let (dir, stats) = (folder.path().join("dir"), folder.path().join("stats"));
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("wireboot.efi"), "MZ").unwrap();
    let sockets = ["a", "b", "c"].map(|name| folder.path().join(name));
    let mut command = wireboot(&["serve"]);
    command.arg(dir).arg("--stats").arg(&stats);
    for socket in &sockets {
        command.arg("--socket").arg(socket);
    }
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    for socket in &sockets {
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        let place = format!("path={},", socket.display());
        assert!(line.contains(&place), "{line}");
    }
    let mut monitors = sockets
        .each_ref()
        .map(|at| UnixStream::connect(at).unwrap());
    monitors.iter_mut().for_each(answers);
    let [first, broken, last] = &mut monitors;
    broken.write_all(&[0xff; 12]).unwrap();
    is_closed(broken);
    answers(first);
    answers(last);
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    let output = child.wait_with_output().unwrap();
    let broken = format!("wireboot nic, {}: the monitor sent", sockets[1].display());
    refused(&output, 0, &broken);
    assert!(sockets.iter().all(|socket| !socket.exists()));
    let stats: serde_json::Value = serde_json::from_slice(&fs::read(stats).unwrap()).unwrap();
    let ports = stats["ports"].as_array().unwrap();
    let places: Vec<_> = ports
        .iter()
        .map(|port| port["socket"].as_str().unwrap())
        .collect();
    assert_eq!(
        places,
        sockets.each_ref().map(|socket| socket.to_str().unwrap())
    );
}

/// A monitor that sends without end keeps neither another machine's card nor a signal waiting.
#[test]
fn a_monitor_that_holds_up_its_port_holds_up_no_other() {
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["a", "b"].map(|name| folder.path().join(name));
    let mut command = wireboot(&["run", "--wire", "none"]);
    for socket in &sockets {
        command.arg("--socket").arg(socket);
    }
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap());
    for _ in &sockets {
        log.read_line(&mut String::new()).unwrap();
    }
    // SET_OWNER, which has no answer.
    let many = message(3, 0, &[]).repeat(10_000);
    let mut flood = UnixStream::connect(&sockets[0]).unwrap();
    let flood = thread::spawn(move || while flood.write_all(&many).is_ok() {});
    let mut other = UnixStream::connect(&sockets[1]).unwrap();
    for _ in 0..100 {
        answers(&mut other);
    }
    let id = child.id().to_string();
    let killed = Command::new("kill").args(["-INT", &id]).status().unwrap();
    assert!(killed.success());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    flood.join().unwrap();
}

#[test]
fn counters_that_cannot_be_written_end_no_card() {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats/file");
    fs::create_dir(folder.path().join("stats")).unwrap();
    let mut command = wireboot(&["run", "--wire", "none", "--stats"]);
    command.arg(&stats);
    let mut card = Card::launch(command, folder);
    fs::remove_dir_all(stats.parent().unwrap()).unwrap();
    card.says("the card goes on");
    answers(&mut card.monitor());
}

#[test]
fn what_cannot_be_served_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "").unwrap();
    let serve = |dir: &Path| wireboot(&["serve"]).arg(dir).output().unwrap();
    let missing = folder.path().join("missing");
    refused(
        &serve(&missing),
        1,
        &format!("cannot serve {}", missing.display()),
    );
    refused(&serve(&file), 1, "Not a directory");
    refused(&wireboot(&["serve"]).output().unwrap(), 2, "DIR");
    let wire = format!("serve={}", missing.display());
    let run = wireboot(&["run", "--socket", "card", "--wire", &wire]).output();
    refused(&run.unwrap(), 1, "cannot serve");
}

#[test]
fn a_socket_that_is_no_path_alone_is_refused_before_it_is_there() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("wireboot.efi"), "MZ").unwrap();
    for (name, text) in [
        (
            "card,mac=52:54:00:12:34:56",
            "`nic serve` takes a path alone; queues=, mac= and mtu= are of `nic run --wire serve=DIR` and `nic args`",
        ),
        ("card,queues=2", "`nic serve` takes a path alone"),
        ("a card", "without spaces, commas and quotes"),
        ("card,x", "without spaces, commas and quotes"),
    ] {
        let mut command = wireboot(&["serve"]);
        command.arg(&dir);
        command.arg("--socket").arg(folder.path().join(name));
        let output = command.output().unwrap();
        refused(&output, 1, text);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!errors.contains("waiting for a monitor"), "{errors}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "{name}");
    }
}

#[test]
fn arguments_name_the_socket_in_full() {
    let output = wireboot(&["args", "--socket", "card"]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let here = std::env::current_dir().unwrap().join("card");
    assert!(
        text.contains(&format!("path={},", here.display())),
        "{text}"
    );
    assert!(text.contains("share=on"), "{text}");
}

#[test]
fn tables_are_printed_and_written_with_all_rows() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("table.json");
    let output = wireboot(&["table", "--bus", "pci64-33", "--line", "10g", "--json"])
        .arg(&json)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("bus pci64-33, line 10g"), "{text}");
    let document: serde_json::Value = serde_json::from_slice(&fs::read(json).unwrap()).unwrap();
    assert_eq!(document["line"]["name"], "10g");
    let rows = &document["tables"]["fragmentation"]["rows"];
    assert_eq!(rows.as_array().unwrap().len(), 43);
}

#[test]
fn a_bus_that_is_not_known_is_refused_with_the_list() {
    let output = wireboot(&["table", "--bus", "pcie"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(
        text.contains("pci32-33, pci64-33, pci32-66, pci64-66"),
        "{text}"
    );
}

/// An example of docs/card/programs.
fn example(name: &str) -> PathBuf {
    let programs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/card/programs");
    programs.join(name)
}

#[test]
fn a_program_is_checked_and_refused_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    let json = folder.path().join("json");
    let check = |file: &Path| {
        let mut command = wireboot(&["check", "--json"]);
        command.arg(&json).arg(file).output().unwrap()
    };
    let output = check(&example("count-protocols.o"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("section guest: "), "{text}");
    assert!(text.ends_with("map from_guest: 257 entries\nmap from_wire: 257 entries\n"));
    let report = fs::read_to_string(&json).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["hooks"][1]["section"], "wire");
    assert_eq!(report["maps"][1]["entries"], 257);
    // Its call of the first function becomes one of another.
    let mut bytes = fs::read(example("drop-mac.o")).unwrap();
    let call = bytes
        .windows(8)
        .position(|it| it == [0x85, 0, 0, 0, 1, 0, 0, 0]);
    bytes[call.unwrap() + 4] = 7;
    let wild = folder.path().join("wild.o");
    fs::write(&wild, bytes).unwrap();
    refused(
        &check(&wild),
        1,
        "section wire: instruction 26: function 7 is unknown",
    );
    refused(
        &check(&example("drop-mac.c")),
        1,
        "no object file of `clang -target bpf`",
    );
    let missing = check(&folder.path().join("missing.o"));
    refused(&missing, 1, "missing.o: No such file");
    // A card does not begin with it.
    let socket = folder.path().join("card");
    let mut command = wireboot(&["run", "--wire", "none", "--socket"]);
    command.arg(&socket).arg("--program").arg(&wild);
    refused(&command.output().unwrap(), 1, "function 7 is unknown");
    assert!(!socket.exists());
}

#[test]
fn a_cards_counters_tell_of_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let stats = folder.path().join("stats");
    let mut command = wireboot(&["run", "--wire", "none", "--program"]);
    command.arg(example("lose-third-offer.o"));
    command.arg("--stats").arg(&stats);
    let mut card = Card::launch(command, folder);
    // No large units pass by a program but by the card's own means.
    let offered = features(&mut card.monitor());
    assert_ne!(offered & 1 << 7, 0);
    let id = card.child.id().to_string();
    assert!(
        Command::new("kill")
            .args(["-INT", &id])
            .status()
            .unwrap()
            .success()
    );
    assert_eq!(card.child.wait().unwrap().code(), Some(0));
    let counters: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(stats).unwrap()).unwrap();
    assert_eq!(
        counters["program"]["maps"]["offers"],
        serde_json::json!([0])
    );
}

/// By its own driver on a card of its own, as another's would be.
#[test]
fn a_card_is_looked_at_and_a_file_comes_by_it() {
    let folder = tempfile::tempdir().unwrap();
    let files = folder.path().join("files");
    fs::create_dir(&files).unwrap();
    // Of "abc": FIPS 180-2, appendix B.1.
    fs::write(files.join("file"), "abc").unwrap();
    let sum = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let socket = folder.path().join("card");
    let wire = format!("serve={}", files.display());
    let command = wireboot(&["run", "--wire", &wire, "--offload", "guest_csum"]);
    let mut card = Card::launch(command, folder);
    let json = card.folder.path().join("json");
    let probe = |more: &[&str]| {
        let mut command = wireboot(&["probe"]);
        command.arg(&socket).args(more).arg("--json").arg(&json);
        let Output {
            status,
            stdout,
            stderr,
        } = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let found = fs::read_to_string(&json).unwrap();
        let found: serde_json::Value = serde_json::from_str(&found).unwrap();
        (status.code(), text(stdout), text(stderr), found)
    };
    for scheme in ["tftp", "http"] {
        let url = format!("{scheme}://10.77.0.1/file");
        let (code, stdout, stderr, found) = probe(&["--fetch", &url]);
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        assert!(stdout.contains(sum), "{stdout}");
        assert_eq!(found["file"]["sha256"], sum);
        assert_eq!(found["file"]["bytes"], 3);
        assert_eq!(found["address"]["server"], "10.77.0.1");
        let features = found["features"].as_array().unwrap();
        assert!(features.iter().any(|name| name == "guest_csum"));
        assert!(features.iter().all(|name| name != "guest_tso4"));
        assert_eq!(found["beyond_virtio"]["chunks"]["frames"], 43);
        card.says("the monitor has closed the connection");
    }
    // What was found out stands there, and the reason below.
    let (code, stdout, stderr, found) = probe(&["--fetch", "http://10.77.0.1/none"]);
    assert_eq!(code, Some(1));
    assert!(stdout.contains("10.77.0."), "{stdout}");
    assert!(stderr.contains("404"), "{stderr}");
    assert!(found["file"].is_null());
    drop(card);
    let output = wireboot(&["probe"]).arg(&socket).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("no card at"), "{stderr}");
}

#[test]
fn the_lab_boots_over_each_fault_that_a_card_has() {
    let refused = wireboot(&["serve", ".", "--fault", "none-such"])
        .output()
        .unwrap();
    let refused = String::from_utf8_lossy(&refused.stderr).into_owned();
    let (_, known) = refused.split_once("is no fault: ").unwrap();
    let (known, _) = known.split_once(", and seed=N").unwrap();
    let mut lab = Command::new(env!("CARGO_BIN_EXE_wireboot"));
    let listed = lab.args(["lab", "nic-faults", "--list"]).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    assert_eq!(listed.lines().collect::<Vec<_>>().join(", "), known);
}
