//! wireboot-callers.efi: makes the calls of boot loaders that Debian does not have, in their order and with their arguments, and tells what
//! came: bytes, time, SHA-256. It runs over the firmware's network stack and over wireboot's, and knows of neither.
//!
//! The jobs are lines of the PE section `.wbconf`, else of the load options (`;` between them): `COMMAND FILE`, and `statuses` and `exit`
//! alone.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod base_code;
mod controllers;
mod datagrams;
mod drivers;
mod efi;
mod frames;
mod http;
mod interface;
mod jobs;
mod left_open;
mod load_file;
mod no_link;
mod report;
mod settings;
mod snp;
mod statuses;
mod tftp;
mod udp;

use alloc::vec::Vec;
use jobs::{Command, Job};
use report::{Failure, tell};
use uefi::Handle;
use wireboot_platform::image::LoadedSelf;
use wireboot_platform::{Clock, Status};

/// Bytes of the heap: files of 64 MiB, which some callers read into memory that grows, or an image of 200 MB in memory of its size.
pub const HEAP: usize = 256 << 20;

/// The program: does its jobs one after the other, and succeeds when all did.
pub fn main() -> Status {
    let clock = Clock::calibrate();
    let image = LoadedSelf::read();
    let jobs = match jobs::parse(&image.text()) {
        Ok(jobs) => jobs,
        Err(word) => {
            tell(format_args!("what is {word}?"));
            return Status::INVALID_PARAMETER;
        }
    };
    let Some(device) = image.device else {
        tell(format_args!("not from a device"));
        return Status::NOT_FOUND;
    };
    let failed = jobs.iter().filter(|job| !done(job, device, clock)).count();
    tell(format_args!("done, {failed} of {} failed", jobs.len()));
    if failed == 0 {
        Status::SUCCESS
    } else {
        Status::ABORTED
    }
}

/// Does a job and tells of it. True when it succeeded.
fn done(job: &Job, device: Handle, clock: Clock) -> bool {
    let Job { command, file } = job;
    let name = command.name();
    if *command == Command::Statuses {
        return statuses::walk(device, clock);
    }
    if *command == Command::DriversStay {
        return drivers::stay(device);
    }
    if *command == Command::Exit {
        return left_open::exit();
    }
    tell(format_args!("{name} {file} begins"));
    let begin = clock.micros();
    let result = match command {
        Command::SetIp => settings::set(device, file).map(|()| Vec::new()),
        Command::ShowIp => settings::show(device, file).map(|()| Vec::new()),
        Command::OpenBsd => base_code::openbsd(device, file),
        Command::Esxi => base_code::esxi(device, file),
        Command::Limine => base_code::limine(device, file),
        Command::NetBsd => snp::netbsd(device, file, clock),
        Command::Shim => base_code::shim(device, file),
        Command::Wds => udp::wds(device, file, clock),
        Command::FreeBsdSnp => snp::freebsd(device, file, clock),
        Command::EsxiHttp => http::esxi(device, file, clock),
        Command::GrubHttp => http::grub(device, file, clock),
        Command::ShimHttp => http::shim(device, file, clock),
        Command::FreeBsdHttp => http::freebsd(device, file, clock),
        Command::Connect => controllers::connect(device, file),
        Command::Disconnect => controllers::disconnect(device, file, clock),
        Command::HandOver => controllers::hand_over(device, file, clock),
        Command::EndWithin => controllers::end_within(device, file),
        Command::LeaveOpen => left_open::leave_open(device, file, clock),
        Command::Start => left_open::start(device, file),
        Command::LoadFile => load_file::start(device, file),
        Command::NoLink => no_link::calls(device, file, clock),
        Command::Statuses | Command::DriversStay | Command::Exit => return false,
    };
    let micros = clock.micros() - begin;
    if result.is_ok() {
        // For whoever takes the time from outside: the digest takes its own.
        tell(format_args!("{name} {file} came"));
    }
    match result {
        Ok(_) if matches!(command, Command::SetIp | Command::ShowIp) => {
            tell(format_args!("{name} {file}: done"));
            true
        }
        Ok(bytes) => {
            report::file(name, file, &bytes, micros);
            true
        }
        Err(Failure::Absent(what)) => {
            tell(format_args!("{name} {file}: UNSUPPORTED: {what}"));
            false
        }
        Err(Failure::Refused(what, status)) => {
            tell(format_args!("{name} {file}: {what}: {status:?}"));
            false
        }
        Err(Failure::Wrong(what)) => {
            tell(format_args!("{name} {file}: {what}"));
            false
        }
    }
}
