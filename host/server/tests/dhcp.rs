//! DHCP clients that we did not write, in a network namespace of their own: no permission is needed, and nothing leaves it.
//!
//! ```text
//!   namespace of the test: s0 (server, 10.9.0.1/24) --veth-- c0 in the client's namespace
//! ```
//!
//! The test starts itself again within `unshare`, as the user that it calls root there.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Set in the process that runs within the namespace.
const INSIDE: &str = "WIREBOOT_TEST_INSIDE";

/// Runs the test `name` again within user, network and mount namespaces; true when this is that run.
fn inside(name: &str) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut unshare = Command::new("unshare");
    // An ordinary user needs a user namespace; root may live where none can be made.
    if std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0 {
        unshare.arg("--net");
    } else {
        unshare.args(["--user", "--map-root-user", "--net"]);
    }
    let output = unshare
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("unshare (Debian package util-linux)");
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}");
    false
}

fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{script}: {text}");
    text.into_owned()
}

/// The server in a process of its own, as `wireboot serve` runs it; the process is this test program again.
struct Served {
    child: Child,
    log: std::path::PathBuf,
    directory: tempfile::TempDir,
}

const ARGUMENTS: &str = "WIREBOOT_TEST_SERVE";

/// Not a test: what `Served` starts.
#[test]
fn serve() {
    #[derive(clap::Parser)]
    struct Arguments {
        #[command(flatten)]
        serve: wireboot_server::cli::ServeArgs,
    }
    let Some(arguments) = std::env::var_os(ARGUMENTS) else {
        return;
    };
    let arguments = arguments.into_string().unwrap();
    let parsed = <Arguments as clap::Parser>::parse_from(
        std::iter::once("serve").chain(arguments.split_whitespace()),
    );
    if let Err(error) = wireboot_server::cli::run(parsed.serve) {
        eprintln!("{error:#}");
        std::process::exit(1);
    }
}

impl Served {
    fn start(arguments: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["wireboot.efi", "linux", "initrd.gz"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        let log = directory.path().join("log");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "serve", "--nocapture"])
            .env(
                ARGUMENTS,
                format!("{} {arguments}", directory.path().display()),
            )
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self {
            child,
            log,
            directory,
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    fn wait_for(&self, text: &str) {
        let began = Instant::now();
        while !self.log().contains(text) {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "no {text:?} in: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Ends it as systemd does, and returns its exit code.
    fn end(&mut self) -> Option<i32> {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(self.child.id() as i32),
            nix::sys::signal::Signal::SIGTERM,
        )
        .unwrap();
        self.child.wait().unwrap().code()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A namespace for clients, kept by a process that sleeps in it.
struct Clients {
    sleeper: Child,
}

impl Clients {
    fn new() -> Self {
        let mut sleeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // One line tells that the namespace is there.
        sleeper
            .stdout
            .as_mut()
            .unwrap()
            .read_exact(&mut [0])
            .unwrap();
        let clients = Self { sleeper };
        let pid = clients.sleeper.id();
        sh(&format!(
            "ip link set lo up; ip link add s0 type veth peer name c0 netns {pid}"
        ));
        sh("ip address add 10.9.0.1/24 dev s0; ip link set s0 up");
        clients.run("ip link set lo up; ip link set c0 address 02:00:00:00:00:07 up");
        clients
    }

    fn run(&self, script: &str) -> String {
        let pid = self.sleeper.id();
        sh(&format!("nsenter --net --target {pid} sh -ec '{script}'"))
    }

    /// What busybox's DHCP client learns, as environment variables of its script.
    fn udhcpc(&self, directory: &Path, arguments: &str) -> String {
        let script = directory.join("script");
        fs::write(&script, "#!/bin/sh\n[ \"$1\" != bound ] || env\n").unwrap();
        sh(&format!("chmod +x {}", script.display()));
        self.run(&format!(
            "busybox udhcpc -i c0 -n -q -f -t 5 -T 1 -s {} -O 66 -O 67 {arguments}",
            script.display()
        ))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}

#[test]
fn udhcpc_gets_a_lease_and_files() {
    if !inside("udhcpc_gets_a_lease_and_files") {
        return;
    }
    let clients = Clients::new();
    // With one interface up, none need be named.
    let mut served = Served::start("");
    served.wait_for("wireboot: ready");
    let directory = served.directory.path();
    let environment = clients.udhcpc(
        directory,
        "-V PXEClient:Arch:00007:UNDI:003000 -x 0x5d:0007",
    );
    for wanted in [
        "subnet=255.255.255.0",
        "siaddr=10.9.0.1",
        "boot_file=wireboot.efi",
        "serverid=10.9.0.1",
        "lease=3600",
    ] {
        assert!(environment.contains(wanted), "no {wanted} in {environment}");
    }
    let address = |environment: &str| {
        environment
            .lines()
            .find_map(|line| line.strip_prefix("ip="))
            .unwrap()
            .to_owned()
    };
    let first = address(&environment);
    assert!(first.starts_with("10.9.0."), "{first}");
    // A broadcast answer for a client that wants one; the address is the same; what does not boot gets no boot file.
    let environment = clients.udhcpc(directory, "-B");
    assert_eq!(address(&environment), first);
    assert!(!environment.contains("boot_file="), "{environment}");
    let environment = clients.udhcpc(directory, "-V HTTPClient:Arch:00016 -x 0x5d:0010");
    assert!(
        environment.contains("boot_file=http://10.9.0.1/wireboot.efi"),
        "{environment}"
    );
    let environment = clients.udhcpc(directory, "-x 0x4d:77697265626f6f74");
    assert!(
        environment.contains("boot_file=http://10.9.0.1/wireboot.conf"),
        "{environment}"
    );

    clients.run(&format!("ip address add {first}/24 dev c0"));
    assert_eq!(
        clients.run("curl -sS tftp://10.9.0.1/wireboot.efi"),
        "wireboot.efi"
    );
    let configuration = clients.run("curl -sS http://10.9.0.1/wireboot.conf");
    assert!(
        configuration.contains("linux linux\ninitrd initrd.gz"),
        "{configuration}"
    );
    assert_eq!(served.end(), Some(0), "{}", served.log());
}

#[test]
fn a_second_server_is_refused_and_a_proxy_is_not() {
    if !inside("a_second_server_is_refused_and_a_proxy_is_not") {
        return;
    }
    let clients = Clients::new();
    // The other server of the network, on the far side.
    clients.run("ip address add 10.9.0.2/24 dev c0");
    let leases = tempfile::NamedTempFile::new().unwrap();
    let pid = clients.sleeper.id().to_string();
    let mut dnsmasq = Command::new("nsenter")
        .args([
            "--net",
            "--target",
            &pid,
            "dnsmasq",
            "--no-daemon",
            "--conf-file=/dev/null",
            "--port=0",
            "--no-ping",
        ])
        .args([
            "--user=root",
            "--interface=c0",
            "--bind-interfaces",
            "--dhcp-range=10.9.0.50,10.9.0.60",
        ])
        .arg(format!("--dhcp-leasefile={}", leases.path().display()))
        .stderr(Stdio::piped())
        .spawn()
        .expect("dnsmasq (Debian package dnsmasq-base)");
    let mut served = Served::start("--interface s0 --no-tftp --no-http");
    assert!(!served.child.wait().unwrap().success());
    assert!(
        served
            .log()
            .contains("10.9.0.2 already gives addresses on s0")
            && served.log().contains("--proxy"),
        "{}",
        served.log()
    );
    let mut served = Served::start("--interface s0 --proxy");
    served.wait_for("wireboot: ready");
    assert_eq!(served.end(), Some(0), "{}", served.log());
    dnsmasq.kill().unwrap();
    dnsmasq.wait().unwrap();
}

#[test]
fn errors_say_what_to_do() {
    if !inside("errors_say_what_to_do") {
        return;
    }
    let _clients = Clients::new();
    let _holder = std::net::UdpSocket::bind("10.9.0.1:69").unwrap();
    for (arguments, wanted) in [
        ("--interface s0 --authoritative", "ss -lunp sport = :69"),
        (
            "--interface nothing",
            "there is no network interface nothing",
        ),
        ("--interface s0 --nbp nothing", "there is no such file"),
        (
            "--interface s0 --range 1-2",
            "expected the first and the last address",
        ),
    ] {
        let mut served = Served::start(arguments);
        assert!(!served.child.wait().unwrap().success());
        assert!(
            served.log().contains(wanted),
            "{arguments}: {}",
            served.log()
        );
    }
}

#[test]
fn an_interface_without_an_address_is_given_one_for_a_while() {
    if !inside("an_interface_without_an_address_is_given_one_for_a_while") {
        return;
    }
    let clients = Clients::new();
    sh("ip address flush dev s0");
    let mut served =
        Served::start("--interface s0 --address 10.8.0.1/24 --authoritative --no-http");
    served.wait_for("wireboot: ready");
    let environment = clients.udhcpc(served.directory.path(), "");
    assert!(environment.contains("ip=10.8.0."), "{environment}");
    assert_eq!(served.end(), Some(0), "{}", served.log());
    assert!(!sh("ip address show dev s0").contains("10.8.0.1"));
}
