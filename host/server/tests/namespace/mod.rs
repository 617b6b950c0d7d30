//! A server in the test's namespace and clients in another.
//!
//! ```text
//!   namespace of the test: s0 (server, 10.9.0.1/24, fe80::1) --veth-- c0 (fe80::7) in the client's namespace
//! ```

use std::fs;
use std::io::Read;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use wireboot_namespace::sh;

/// The server in a process of its own, as `wireboot serve` runs it; the process is this test program again.
pub struct Served {
    pub child: Child,
    log: std::path::PathBuf,
    pub directory: tempfile::TempDir,
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

#[allow(dead_code, reason = "not every test program needs all of it")]
impl Served {
    pub fn start(arguments: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["wireboot.efi", "linux", "initrd.gz"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        let log = directory.path().join("log");
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "namespace::serve", "--nocapture"])
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

    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub fn wait_for(&self, text: &str) {
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
    pub fn end(&mut self) -> Option<i32> {
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
pub struct Clients {
    pub sleeper: Child,
}

impl Clients {
    pub fn new() -> Self {
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
        // Link-local addresses that need no detection of duplicates are there at once.
        sh("ip link set s0 addrgenmode none; ip link set s0 up; ip address add 10.9.0.1/24 dev s0");
        sh("ip address add fe80::1/64 dev s0 nodad");
        clients.run("ip link set lo up; ip link set c0 addrgenmode none");
        clients.run(
            "ip link set c0 address 02:00:00:00:00:07 up; ip address add fe80::7/64 dev c0 nodad",
        );
        clients
    }

    pub fn run(&self, script: &str) -> String {
        let pid = self.sleeper.id();
        sh(&format!("nsenter --net --target {pid} sh -ec '{script}'"))
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}
