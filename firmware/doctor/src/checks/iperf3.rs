//! `iperf3=ADDRESS`: what TCP and UDP move between this machine and a server of iperf3, by wireboot's engine on the BSP.

use crate::error::Error;
use crate::examination::Examination;
use crate::options::shown;
use crate::throughput::Measurer;
use alloc::format;
use alloc::string::ToString;

pub(crate) fn examine(examination: &mut Examination<'_>) -> Result<(), Error> {
    let options = &examination.options.iperf3;
    let test = options.test().ok_or(Error::NoIperfServer)?;
    log::info!("{}", shown(&test));
    let mut measurer = Measurer::open(examination, options.driver, test.server.ip())?;
    let mut measured = measurer.measure(&test)?;
    drop(measurer);
    measured.check = "iperf3".to_string();
    let rate = measured.bits_per_second() / 1e6;
    let lost = measured
        .streams
        .iter()
        .filter_map(|one| one.datagrams.as_ref());
    let lost: u64 = lost.map(|one| one.lost).sum();
    let lost = match lost {
        0 => "".to_string(),
        lost => format!(", {lost} datagrams lost"),
    };
    log::info!("{rate:.0} Mbit/s{lost}");
    examination.report.throughput.push(measured);
    Ok(())
}
