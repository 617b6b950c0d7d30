//! When each step of a boot came, put together from what the server did, what the console showed and what QEMU saw.

pub mod plot;

use comfy_table::{CellAlignment, Table, presets};
use regex::Regex;
use serde::Serialize;

use crate::qemu::{Accelerator, RunningMachine};
use crate::server::ServerEvent;

/// The steps of a boot, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BootStep {
    /// The machine is switched on.
    PowerOn,
    /// The firmware asks for an address.
    FirmwareReady,
    /// The firmware has an address.
    Dhcp,
    /// The firmware has loaded the network boot program.
    Nbp,
    /// wireboot has the network card.
    WirebootReady,
    /// wireboot has an address.
    WirebootAddress,
    /// wireboot has fetched a file.
    File,
    /// Boot services ended: the network card is reset.
    ExitBootServices,
    /// The kernel runs.
    Kernel,
    /// The kernel starts the first process.
    UserSpace,
    /// The text that was waited for is on the console.
    Reached,
}

impl BootStep {
    fn label(self) -> &'static str {
        match self {
            Self::PowerOn => "power-on",
            Self::FirmwareReady => "firmware ready, asks for an address",
            Self::Dhcp => "firmware has an address",
            Self::Nbp => "network boot program loaded",
            Self::WirebootReady => "wireboot ready",
            Self::WirebootAddress => "wireboot has an address",
            Self::File => "file",
            Self::ExitBootServices => "ExitBootServices, network card reset",
            Self::Kernel => "kernel",
            Self::UserSpace => "user space",
            Self::Reached => "reached",
        }
    }

    /// What is waited for after this step, and what it means when nothing comes.
    #[must_use]
    pub fn diagnosis(self) -> &'static str {
        match self {
            Self::PowerOn => {
                "The firmware never asked for an address: did it start, does it find the network card?"
            }
            Self::FirmwareReady => {
                "The firmware asked for an address but took none: look at what the server offered."
            }
            Self::Dhcp => {
                "The firmware has an address but did not load the network boot program: look for TFTP errors of the server."
            }
            Self::Nbp => {
                "The network boot program was loaded but said nothing: is it an x64 EFI program?"
            }
            Self::WirebootReady => {
                "wireboot got no address of its own: look at its messages above."
            }
            Self::WirebootAddress => {
                "wireboot has an address but fetched nothing: look at its messages and the server's errors."
            }
            Self::File => {
                "Files came, but the system was not started: look at wireboot's messages above."
            }
            Self::ExitBootServices => {
                "The system took over but its kernel said nothing: does its command line name console=ttyS0?"
            }
            Self::Kernel => {
                "The kernel started but not its first process: look at its messages; is the memory enough (--memory)?"
            }
            Self::UserSpace => {
                "The system runs, but what was waited for did not come: give it more --timeout, or another --until."
            }
            Self::Reached => "All was there.",
        }
    }
}

/// A step that was seen.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Mark {
    /// The step of the boot.
    pub step: BootStep,
    /// When, in seconds since power-on.
    pub at: f64,
    /// What, where the step alone does not say it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub what: String,
    /// Bytes of a file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// How long a file took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// How fast a file came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mbit_s: Option<f64>,
}

impl Mark {
    fn about(mut self, what: Option<&String>) -> Self {
        self.what = what.cloned().unwrap_or_default();
        self
    }

    fn transfer(mut self, what: &str, bytes: u64, seconds: f64) -> Self {
        self.what = what.to_owned();
        self.bytes = Some(bytes);
        self.seconds = Some(seconds);
        self.mbit_s = (seconds > 0.0).then(|| bytes as f64 * 8e-6 / seconds);
        self
    }

    /// The step and what it is about; of a file its name alone.
    fn title(&self) -> String {
        match self.step {
            BootStep::File => self.what.clone(),
            step if self.what.is_empty() => step.label().to_owned(),
            step => format!("{}: {}", step.label(), self.what),
        }
    }

    /// A line for people.
    #[must_use]
    pub fn line(&self) -> String {
        let mut line = format!("{:8.3} s  {}", self.at, self.step.label());
        if !self.what.is_empty() {
            line.push_str(&format!(": {}", self.what));
        }
        if let (Some(bytes), Some(seconds)) = (self.bytes, self.seconds) {
            line.push_str(&format!(", {:.1} MB in {seconds:.3} s", bytes as f64 / 1e6));
        }
        if let Some(rate) = self.mbit_s {
            line.push_str(&format!(", {rate:.0} Mbit/s"));
        }
        line
    }
}

/// A boot's steps so far.
#[derive(Clone, Debug, Serialize)]
pub struct Timeline {
    /// What runs the guest's instructions.
    pub accelerator: Accelerator,
    /// When the machine was switched on, in seconds since the Unix epoch.
    pub power_on: f64,
    /// Whether what was waited for came.
    pub reached: bool,
    /// The steps that were seen; in the order of time after [`Watcher::finish`].
    pub marks: Vec<Mark>,
}

/// Looks for the steps of a boot.
pub struct Watcher {
    timeline: Timeline,
    ready: Regex,
    address: Regex,
    file: Regex,
    kernel: Regex,
    user_space: Regex,
    until: Option<Regex>,
    /// Files seen on the console so far.
    files: usize,
}

impl Watcher {
    /// Watches a machine that is just switched on. `until` is what the boot is to reach; without it, user space.
    ///
    /// # Errors
    /// Never: its expressions are fixed.
    pub fn new(
        accelerator: Accelerator,
        power_on: f64,
        until: Option<Regex>,
    ) -> Result<Self, regex::Error> {
        let mut watcher = Self {
            timeline: Timeline {
                accelerator,
                power_on,
                reached: false,
                marks: Vec::new(),
            },
            ready: Regex::new(r"wireboot: ready")?,
            address: Regex::new(r"wireboot: address \S+")?,
            file: Regex::new(r"wireboot: (\S+): (\d+) bytes in ([0-9.]+) s")?,
            kernel: Regex::new(r"Linux version \S+")?,
            user_space: Regex::new(r"Run (\S+) as init process")?,
            until,
            files: 0,
        };
        watcher.add(watcher.mark(BootStep::PowerOn, power_on));
        Ok(watcher)
    }

    /// The steps so far.
    #[must_use]
    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The furthest step so far.
    #[must_use]
    pub fn furthest(&self) -> BootStep {
        self.timeline
            .marks
            .iter()
            .map(|mark| mark.step)
            .max()
            .unwrap_or(BootStep::PowerOn)
    }

    fn has(&self, step: BootStep) -> bool {
        self.timeline.marks.iter().any(|mark| mark.step == step)
    }

    fn mark(&self, step: BootStep, time: f64) -> Mark {
        Mark {
            step,
            at: time - self.timeline.power_on,
            what: String::new(),
            bytes: None,
            seconds: None,
            mbit_s: None,
        }
    }

    fn add(&mut self, mark: Mark) {
        self.timeline.marks.push(mark);
    }

    /// Takes in what the server did.
    pub fn server(&mut self, events: &[ServerEvent]) {
        for event in events {
            let step = match event.event.as_str() {
                "dhcp-discover" | "dhcpv6-request" => BootStep::FirmwareReady,
                "dhcp-ack" | "dhcpv6-reply" => BootStep::Dhcp,
                "tftp-done" | "http-done" => BootStep::Nbp,
                _ => continue,
            };
            // The first of each kind is the firmware's; what follows is wireboot's, and told by its console.
            if self.has(step) {
                continue;
            }
            let mark = self.mark(step, event.time);
            self.add(match step {
                BootStep::Nbp => mark.transfer(&event.file, event.bytes, event.seconds),
                _ => mark,
            });
        }
    }

    /// Takes in what console and trace show. True when the boot has reached its aim.
    pub fn machine(&mut self, machine: &RunningMachine) -> bool {
        let console = &machine.console;
        for (step, seen) in [
            (BootStep::WirebootReady, console.seen(&self.ready)),
            (BootStep::WirebootAddress, console.seen(&self.address)),
            (BootStep::Kernel, console.seen(&self.kernel)),
            (BootStep::UserSpace, console.seen(&self.user_space)),
        ] {
            let Some(seen) = seen.filter(|_| !self.has(step)) else {
                continue;
            };
            if step == BootStep::Kernel {
                self.exit_boot_services(machine, seen.time);
            }
            self.add(self.mark(step, seen.time).about(seen.groups.get(1)));
        }
        let files = console.all(&self.file);
        for seen in files.iter().skip(self.files) {
            if let [_, url, bytes, seconds] = seen.groups.as_slice() {
                let (bytes, seconds) = (bytes.parse().unwrap_or(0), seconds.parse().unwrap_or(0.0));
                self.add(
                    self.mark(BootStep::File, seen.time)
                        .transfer(url, bytes, seconds),
                );
            }
        }
        self.files = files.len();
        if let Some(seen) = console.seen(self.until.as_ref().unwrap_or(&self.user_space)) {
            if self.until.is_some() {
                self.add(
                    self.mark(BootStep::Reached, seen.time)
                        .about(Some(&seen.text)),
                );
            }
            self.timeline.reached = true;
        }
        self.timeline.reached
    }

    /// The whole, in the order of time: what was read from several sources came in the order of reading.
    #[must_use]
    pub fn finish(mut self) -> Timeline {
        self.timeline.marks.sort_by(|a, b| a.at.total_cmp(&b.at));
        self.timeline
    }

    /// The last reset of a virtio device before the kernel speaks is the one that wireboot does when boot services end.
    fn exit_boot_services(&mut self, machine: &RunningMachine, kernel: f64) {
        let resets = machine.trace().into_iter().filter(|event| {
            event.name == "virtio_set_status" && event.arguments.ends_with("val 0")
        });
        if let Some(reset) = resets.take_while(|event| event.time < kernel).last() {
            self.add(self.mark(BootStep::ExitBootServices, reset.time));
        }
    }
}

impl Timeline {
    /// A table for people.
    #[must_use]
    pub fn table(&self) -> String {
        let mut table = Table::new();
        table.load_style(presets::ASCII_MARKDOWN);
        table.set_header(["at, s", "step", "took, s", "MB", "Mbit/s"]);
        let number = |value: Option<f64>, digits: usize| {
            value
                .map(|value| format!("{value:.digits$}"))
                .unwrap_or_default()
        };
        for mark in &self.marks {
            let megabytes = mark.bytes.map(|bytes| bytes as f64 / 1e6);
            table.add_row([
                format!("{:.3}", mark.at),
                mark.title(),
                number(mark.seconds, 3),
                number(megabytes, 1),
                number(mark.mbit_s, 0),
            ]);
        }
        for column in [0, 2, 3, 4] {
            if let Some(column) = table.column_mut(column) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.to_string()
    }
}
