//! Where a report goes: screen, serial port, the disk and the server that doctor.efi came from. A check that runs is announced on the way, so that
//! it is known in which one a machine hung.

mod disk;
mod screen;
mod server;

use crate::examination::Examination;
use alloc::format;
use alloc::string::String;
use disk::Disk;
use wireboot_platform::volume::Volume;
use wireboot_platform::{Status, console, watchdog};

/// What stands before the report on the serial port.
const PREFIX: &str = "doctor: ";
/// What stands before a check's name there.
const RUNS: &str = "doctor-check: ";
/// The name of what is done behind the checks.
const SERVER: &str = "server";
/// The firmware resets the machine when a server takes longer than this, in seconds.
const LIMIT_S: usize = 300;

/// Who takes the report.
pub(crate) struct Delivery {
    disk: Option<Disk<Volume>>,
    interrupted: Option<String>,
}

impl Delivery {
    /// Finds the disk, and what an examination before this one left there.
    pub(crate) fn open(device: Option<wireboot_platform::Handle>) -> Self {
        let mut disk = device.and_then(Volume::of).map(Disk);
        let interrupted = disk.as_mut().and_then(Disk::interrupted);
        Self { disk, interrupted }
    }

    /// The check in which an examination before this one ended, and the machine with it.
    pub(crate) fn interrupted(&self) -> Option<&str> {
        self.interrupted.as_deref()
    }

    /// Announces a check.
    pub(crate) fn announce(&mut self, check: &str) {
        // Without a port, the screen has it.
        let _ = console::serial_line(&format!("{RUNS}{check}"));
        let begun = self.disk.as_mut().map(|disk| disk.begin(check));
        if let Some(Err(status)) = begun {
            self.give_up(status);
        }
    }

    fn give_up(&mut self, status: Status) {
        log::warn!("nothing is kept on the disk that doctor.efi came from: it says {status}");
        self.disk = None;
    }

    /// Shows the findings, and delivers the report to all who take it. Who does not is told of, and is no error.
    pub(crate) fn deliver(mut self, examination: &Examination<'_>) {
        let report = &examination.report;
        for line in screen::lines(report) {
            console::line(&line);
        }
        let json = report.to_json_line();
        if !console::serial_line(&format!("{PREFIX}{json}")) {
            log::warn!("no serial port takes the report");
        }
        if let Some(disk) = &mut self.disk {
            match disk.keep(&json, &examination.files) {
                Ok(names) => log::info!("kept on the disk as {}", names.join(", ")),
                Err(status) => log::warn!(
                    "the disk that doctor.efi came from does not keep all of the report: it says {status}"
                ),
            }
        }
        if self.interrupted.as_deref() != Some(SERVER) {
            self.announce(SERVER);
            let watchdog = watchdog::arm(LIMIT_S);
            send(&json, examination);
            drop(watchdog);
        }
        if let Some(disk) = &mut self.disk
            && let Err(status) = disk.end()
        {
            self.give_up(status);
        }
    }
}

/// To the server, if there is one.
fn send(json: &str, examination: &Examination<'_>) {
    let origin = examination.origin;
    let named = examination.options.server.as_deref();
    let url = match server::address(named, origin.url.as_ref()) {
        Ok(Some(url)) => url,
        Ok(None) => return,
        Err(error) => return log::warn!("the report goes to no server: {error}"),
    };
    match server::send(&url, json, origin, examination.clock) {
        Ok(()) => log::info!("the report was sent to {url}"),
        Err(error) => log::warn!("the report did not come to {url}: {error}"),
    }
}
