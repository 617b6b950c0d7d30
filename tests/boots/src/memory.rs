//! Large files and little memory.

use std::fs::File;

use anyhow::{Result, ensure};
use wireboot_lab::netns::Lab;

use crate::fixture::Fixture;
use crate::system;

/// A machine with so much memory below 4 GiB and above, in MiB, and an initrd that ends with so many MiB of zeros, which Linux skips.
fn fixture(lab: &Lab, low: u32, high: u32, zeros: u64) -> Result<Fixture<'_>> {
    let mut fixture = Fixture::new(lab)?;
    fixture.machine.memory_mib = low + high;
    fixture.machine.machine = format!("q35,max-ram-below-4g={low}M");
    File::create(fixture.system.directory.join("zeros"))?.set_len(zeros << 20)?;
    fixture.system.configure(&format!(
        "title Test system\nlinux linux\ninitrd system.cpio\ninitrd data.cpio\ninitrd zeros\noptions {}\n",
        system::OPTIONS
    ))?;
    Ok(fixture)
}

fn boots(fixture: &Fixture<'_>) -> Result<()> {
    let _server = fixture.serve(&[])?;
    fixture.boots().map(drop)
}

/// Linux' copy fits above 4 GiB if nothing else is there; below is room for one.
pub(crate) fn initrd_twice(lab: &Lab) -> Result<()> {
    boots(&fixture(lab, 512, 256, 222)?.by_stick()?)
}

/// The initrd is larger than what is above 4 GiB, and does not fit twice below.
pub(crate) fn initrd_in_pieces(lab: &Lab) -> Result<()> {
    boots(&fixture(lab, 512, 256, 258)?.by_stick()?)
}

/// 3 GiB are enough for 1 GiB, which Linux copies.
pub(crate) fn initrd_of_a_gibibyte(lab: &Lab) -> Result<()> {
    let mut fixture = fixture(lab, 3072, 0, 1024)?;
    fixture.machine.machine = "q35".into();
    boots(&fixture.by_stick()?)
}

/// The user is told before the file comes, and the next boot option has its turn.
pub(crate) fn initrd_too_large(lab: &Lab) -> Result<()> {
    let mut fixture = fixture(lab, 256, 0, 150)?;
    fixture.machine.machine = "q35".into();
    let mut server = fixture.serve(&[])?;
    let mut machine = fixture.start()?;
    fixture.fails(
        &mut machine,
        &[
            r"wireboot: warning: http://10\.77\.0\.1/zeros does not fit: it has 150 MiB, Linux' copy of all initrds 15[0-9] MiB in one piece; 1[0-9][0-9] MiB are free, 1[0-9][0-9] of them in one piece",
            r"wireboot: error: http://10\.77\.0\.1/zeros from 10\.77\.0\.1:80: no memory for 157286400 bytes: give the machine more memory, or boot a smaller file",
        ],
    )?;
    fixture.goes_on(&mut machine)?;
    let sent: u64 = server
        .events()?
        .iter()
        .filter(|event| event.event != "http-start" && event.file.ends_with("zeros"))
        .map(|event| event.bytes)
        .sum();
    ensure!(
        sent < 10_000_000,
        "{sent} bytes came of a file without a place"
    );
    Ok(())
}
