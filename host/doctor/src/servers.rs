//! Boot servers and the paths to them in words and figures, for the terminal and the page.

use wireboot_report::servers::{HttpAnswer, Path, TftpAnswer};
use wireboot_report::{Report, Server};

/// The heads of [`rows`]' columns.
pub(crate) const HEADS: [&str; 3] = ["server", "path", "answer"];

/// As many lengths of packets are shown.
const SHOWN: usize = 4;

/// What is known of each server.
pub(crate) fn rows(report: &Report) -> impl Iterator<Item = [String; 3]> {
    report.servers.iter().map(row)
}

fn row(server: &Server) -> [String; 3] {
    let mut who = server.url.clone();
    if !server.url.contains(&server.address) {
        who += &format!(" ({})", server.address);
    }
    let path = match &server.path {
        Some(known) => path(known),
        None if server.address.is_empty() => "not asked".to_owned(),
        None => "no echo is answered".to_owned(),
    };
    let answers = server.tftp.as_ref().map(tftp).into_iter();
    let answers = answers.chain(server.http.as_ref().map(http));
    let answers: Vec<String> = answers.chain(server.failure.clone()).collect();
    [who, path, answers.join("; ")]
}

fn path(path: &Path) -> String {
    let mut text = match path.mtu_bytes {
        None => "no long packets".to_owned(),
        Some(mtu) if mtu >= path.link_mtu_bytes => format!("packets of {mtu} bytes"),
        Some(mtu) if path.told => format!("packets of {mtu} bytes, as a router says"),
        Some(mtu) => format!("packets of {mtu} bytes, and no router says so"),
    };
    if !path.on_link {
        text += ", by a router";
    }
    for one in path.echoes.iter().take(SHOWN) {
        text += &format!(
            "; {} bytes: {} to {} µs, {:.1} % lost",
            one.packet_bytes,
            one.least_us,
            one.most_us,
            one.lost_percent()
        );
        if one.reordered > 0 {
            text += &format!(", {} out of order", one.reordered);
        }
        if one.repeated > 0 {
            text += &format!(", {} twice", one.repeated);
        }
    }
    text
}

fn tftp(answer: &TftpAnswer) -> String {
    let granted = |name: &str, asked: u16, granted: Option<u16>| match granted {
        Some(granted) if granted == asked => format!("{name} {granted}"),
        Some(granted) => format!("{name} {granted} instead of {asked}"),
        None => format!("no {name}"),
    };
    let size = match answer.file_bytes {
        Some(bytes) => format!("tsize {bytes}"),
        None => "no tsize".to_owned(),
    };
    let block = answer.first_block_us.map_or_else(String::new, |micros| {
        format!(", first block {micros} µs later")
    });
    format!(
        "{}, {}, {size}; after {} µs{block}",
        granted("blksize", answer.asked_block_bytes, answer.block_bytes),
        granted("windowsize", answer.asked_window, answer.window),
        answer.answer_us,
    )
}

fn http(answer: &HttpAnswer) -> String {
    let ranges = if answer.ranges { "ranges" } else { "no ranges" };
    let stays = if answer.keeps_alive {
        "connections stay"
    } else {
        "a connection each"
    };
    let software = answer
        .software
        .as_deref()
        .map_or_else(String::new, |name| format!("{name}: "));
    let size = answer
        .file_bytes
        .map_or_else(String::new, |bytes| format!("{bytes} bytes, "));
    format!(
        "{software}{}, {size}{ranges}, {stays}; connected after {} µs, first byte {} µs after the request",
        answer.status, answer.connect_us, answer.first_byte_us
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wireboot_report::servers::Echoes;

    #[test]
    fn a_server_is_told_in_three_columns() {
        let mut report = Report::new();
        report.servers.push(Server {
            url: "tftp://boot.lab/a".into(),
            address: "10.0.0.1".into(),
            path: Some(Path {
                link_mtu_bytes: 1500,
                mtu_bytes: Some(1400),
                echoes: vec![Echoes {
                    packet_bytes: 64,
                    asked: 100,
                    answered: 98,
                    reordered: 1,
                    repeated: 3,
                    least_us: 90,
                    median_us: 95,
                    most_us: 200,
                }],
                ..Path::default()
            }),
            tftp: Some(TftpAnswer {
                asked_block_bytes: 1468,
                block_bytes: Some(1024),
                asked_window: 64,
                file_bytes: Some(7),
                answer_us: 300,
                first_block_us: Some(150),
                ..TftpAnswer::default()
            }),
            ..Server::default()
        });
        report.servers.push(Server {
            url: "http://10.0.0.2/a".into(),
            address: "10.0.0.2".into(),
            http: Some(HttpAnswer {
                status: 206,
                software: Some("nginx".into()),
                file_bytes: Some(9),
                ranges: true,
                keeps_alive: true,
                connect_us: 80,
                first_byte_us: 120,
            }),
            failure: Some("broken off".into()),
            ..Server::default()
        });
        let rows: Vec<_> = rows(&report).collect();
        assert_eq!(
            rows,
            [
                [
                    "tftp://boot.lab/a (10.0.0.1)",
                    "packets of 1400 bytes, and no router says so, by a router; 64 bytes: 90 to 200 µs, 2.0 % lost, 1 out of order, 3 twice",
                    "blksize 1024 instead of 1468, no windowsize, tsize 7; after 300 µs, first block 150 µs later",
                ],
                [
                    "http://10.0.0.2/a",
                    "no echo is answered",
                    "nginx: 206, 9 bytes, ranges, connections stay; connected after 80 µs, first byte 120 µs after the request; broken off",
                ],
            ]
        );
    }
}
