//! wireboot-callers.efi: makes the calls of boot loaders that Debian does not have, in their order and with their arguments, and tells what
//! came: bytes, time, SHA-256. It runs over the firmware's network stack and over wireboot's, and knows of neither.
//!
//! The jobs are lines of the PE section `.wbconf`, else of the load options (`;` between them): `VERB FILE`, and `statuses` and `exit` alone.
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
use jobs::{Job, Verb};
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
    let Job { verb, file } = job;
    let name = verb.name();
    if *verb == Verb::Statuses {
        return statuses::walk(device, clock);
    }
    if *verb == Verb::DriversStay {
        return drivers::stay(device);
    }
    if *verb == Verb::Exit {
        return left_open::exit();
    }
    tell(format_args!("{name} {file} begins"));
    let begin = clock.micros();
    let result = match verb {
        Verb::SetIp => settings::set(device, file).map(|()| Vec::new()),
        Verb::ShowIp => settings::show(device, file).map(|()| Vec::new()),
        Verb::OpenBsd => base_code::openbsd(device, file),
        Verb::Esxi => base_code::esxi(device, file),
        Verb::Limine => base_code::limine(device, file),
        Verb::NetBsd => snp::netbsd(device, file, clock),
        Verb::Shim => base_code::shim(device, file),
        Verb::Wds => udp::wds(device, file, clock),
        Verb::FreeBsdSnp => snp::freebsd(device, file, clock),
        Verb::EsxiHttp => http::esxi(device, file, clock),
        Verb::GrubHttp => http::grub(device, file, clock),
        Verb::ShimHttp => http::shim(device, file, clock),
        Verb::FreeBsdHttp => http::freebsd(device, file, clock),
        Verb::Connect => controllers::connect(device, file),
        Verb::Disconnect => controllers::disconnect(device, file, clock),
        Verb::HandOver => controllers::hand_over(device, file, clock),
        Verb::LeaveOpen => left_open::leave_open(device, file, clock),
        Verb::Start => left_open::start(device, file),
        Verb::LoadFile => load_file::start(device, file),
        Verb::NoLink => no_link::calls(device, file, clock),
        Verb::Statuses | Verb::DriversStay | Verb::Exit => return false,
    };
    let micros = clock.micros() - begin;
    if result.is_ok() {
        // For whoever takes the time from outside: the digest takes its own.
        tell(format_args!("{name} {file} came"));
    }
    match result {
        Ok(_) if matches!(verb, Verb::SetIp | Verb::ShowIp) => {
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
