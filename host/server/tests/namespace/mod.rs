//! A server in the test's namespace and clients in another.
//!
//! ```text
//!   namespace of the test: s0 (server, 10.9.0.1/24, fe80::1) --veth-- c0 (fe80::7) in the client's namespace
//! ```

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use wireboot_namespace::sh;

/// The server in a process of its own, as `wireboot serve` runs it; the process is this test program again.
pub(crate) struct Served {
    pub child: Child,
    log: PathBuf,
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
    pub(crate) fn start(arguments: &str) -> Self {
        Self::set_up(|directory| Self::command(directory, arguments))
    }

    /// Another one, which keeps its leases where this one does.
    pub(crate) fn start_beside(&self, arguments: &str) -> Self {
        Self::set_up(|directory| {
            let mut command = Self::command(directory, arguments);
            command.env("STATE_DIRECTORY", self.directory.path().join("state"));
            command
        })
    }

    fn set_up(command: impl FnOnce(&Path) -> Command) -> Self {
        let directory = tempfile::tempdir().unwrap();
        // The server reads it as nobody.
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        for name in ["wireboot.efi", "linux", "initrd.gz"] {
            fs::write(directory.path().join(name), name).unwrap();
        }
        Self {
            child: command(directory.path()).spawn().unwrap(),
            log: directory.path().join("log"),
            directory,
        }
    }

    /// Ends it, and starts another in its place as another user.
    pub(crate) fn end_and_start_as(&mut self, uid: u32, arguments: &str) {
        assert_eq!(self.end(), Some(0), "{}", self.log());
        let mut command = Self::command(self.directory.path(), arguments);
        self.child = command.uid(uid).gid(uid).spawn().unwrap();
    }

    /// Ends it, and starts another in its place as `nohup` does.
    pub(crate) fn end_and_start_without_hangup(&mut self, arguments: &str) {
        assert_eq!(self.end(), Some(0), "{}", self.log());
        let command = Self::command(self.directory.path(), arguments);
        let mut shell = Command::new("env");
        shell.args(["--ignore-signal=HUP"]);
        // What follows is the program, without the default for SIGHUP.
        shell.args(command.get_args().skip(1));
        for (name, value) in command.get_envs() {
            shell.env(name, value.unwrap());
        }
        let log = fs::File::create(&self.log).unwrap();
        shell.stdout(Stdio::null()).stderr(log);
        self.child = shell.spawn().unwrap();
    }

    fn command(directory: &Path, arguments: &str) -> Command {
        let log = fs::File::create(directory.join("log")).unwrap();
        // These tests may run under nohup, too.
        let mut command = Command::new("env");
        command
            .arg("--default-signal=HUP")
            .arg(std::env::current_exe().unwrap())
            .args(["--exact", "namespace::serve", "--nocapture"])
            .current_dir(directory)
            .env("STATE_DIRECTORY", directory.join("state"))
            .env(ARGUMENTS, format!("{} {arguments}", directory.display()))
            .stdout(Stdio::null())
            .stderr(log);
        command
    }

    /// Ends it, and starts another in its place.
    pub(crate) fn end_and_start(&mut self, arguments: &str) {
        assert_eq!(self.end(), Some(0), "{}", self.log());
        self.child = Self::command(self.directory.path(), arguments)
            .spawn()
            .unwrap();
    }

    /// Kills it, and starts another in its place.
    pub(crate) fn kill_and_start(&mut self, arguments: &str) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = Self::command(self.directory.path(), arguments)
            .spawn()
            .unwrap();
    }

    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap()
    }

    pub(crate) fn wait_for(&self, text: &str) {
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

    pub(crate) fn signal(&self, signal: Signal) {
        let process = nix::unistd::Pid::from_raw(self.child.id() as i32);
        nix::sys::signal::kill(process, signal).unwrap();
    }

    /// Ends it as systemd does, and returns its exit code.
    pub(crate) fn end(&mut self) -> Option<i32> {
        self.signal(Signal::SIGTERM);
        self.ended()
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) fn ended(&mut self) -> Option<i32> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code();
            }
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "it goes on: {}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A network namespace, kept by a process that sleeps in it.
pub(crate) struct Namespace {
    sleeper: Child,
}

impl Namespace {
    fn new() -> Self {
        let mut sleeper = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo; exec sleep 600"])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        // One line tells that the namespace is there.
        let output = sleeper.stdout.as_mut().unwrap();
        output.read_exact(&mut [0]).unwrap();
        Self { sleeper }
    }

    /// The process that keeps it.
    pub(crate) fn pid(&self) -> u32 {
        self.sleeper.id()
    }

    /// What `script` says in it.
    pub(crate) fn run(&self, script: &str) -> String {
        let pid = self.pid();
        sh(&format!("nsenter --net --target {pid} sh -ec '{script}'"))
    }

    /// The address that a client with this Ethernet address is given. On a busy host the server takes its time.
    #[allow(dead_code, reason = "not every test program needs all of it")]
    pub(crate) fn obtain(&self, mac: &str) -> Option<String> {
        self.ask(mac, 30)
    }

    /// Whether a client with this Ethernet address is given none.
    #[allow(dead_code, reason = "not every test program needs all of it")]
    pub(crate) fn is_refused(&self, mac: &str) -> bool {
        self.ask(mac, 4).is_none()
    }

    /// Asks each second for an address.
    fn ask(&self, mac: &str, seconds: u32) -> Option<String> {
        let log = self.run(&format!(
            "ip link set c0 address {mac}; busybox udhcpc -i c0 -n -q -f -t {seconds} -T 1 -s /bin/true 2>&1 || true"
        ));
        eprintln!("{mac}: {log}");
        let (_, lease) = log.split_once("lease of ")?;
        Some(lease.split(' ').next()?.to_owned())
    }

    /// A program that is started in it.
    #[allow(dead_code, reason = "not every test program needs all of it")]
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        let pid = self.pid().to_string();
        command.args(["--net", "--target", &pid, program]);
        command
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.sleeper.kill();
        let _ = self.sleeper.wait();
    }
}

/// A namespace for clients, on a cable to the server's.
pub(crate) struct Clients(Namespace);

impl Clients {
    pub(crate) fn new() -> Self {
        let clients = Self(Namespace::new());
        let pid = clients.pid();
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

    /// A namespace with one client more: `c0` is a bridge's port from now on, and another client's cable ends at the bridge, `b0`.
    #[allow(dead_code, reason = "not every test program needs all of it")]
    pub(crate) fn another(&self) -> Namespace {
        let another = Namespace::new();
        let pid = another.pid();
        self.run("ip link add b0 type bridge; ip link set b0 up; ip link set c0 master b0");
        self.run(&format!(
            "ip link add b1 type veth peer name c0 netns {pid}; ip link set b1 master b0 up"
        ));
        another.run("ip link set lo up; ip link set c0 up");
        another
    }
}

impl std::ops::Deref for Clients {
    type Target = Namespace;

    fn deref(&self) -> &Namespace {
        &self.0
    }
}
