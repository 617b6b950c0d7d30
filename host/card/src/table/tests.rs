use std::sync::LazyLock;

use super::*;

fn tables() -> &'static Tables {
    static TABLES: LazyLock<Tables> = LazyLock::new(|| Tables::new("pci32-33", "1g").unwrap());
    &TABLES
}

fn sheet<'a>(tables: &'a Tables, name: &str) -> &'a Sheet {
    tables
        .sheets
        .iter()
        .find(|sheet| sheet.name() == name)
        .unwrap()
}

/// Some columns of the rows that `key` is first in.
fn row<'a>(cells: &[Vec<&'a str>], first: &str, columns: &[usize]) -> Vec<&'a str> {
    let row = cells.iter().find(|cells| cells[0] == first).unwrap();
    columns.iter().map(|column| row[*column]).collect()
}

#[test]
fn the_sources_figures_stand_beside_ours_to_the_last_digit() {
    let tables = tables();
    let cells = sheet(tables, "dissertation").cells();
    let expected: [(&str, [&str; 3]); 18] = [
        (
            "limit, frame of 792 bytes",
            ["952.0202", "952.0202", "952.0202"],
        ),
        (
            "limit, frame of 1048 bytes",
            ["963.7405", "963.7405", "963.7405"],
        ),
        (
            "limit, frame of 1536 bytes",
            ["975.2604", "975.2604", "975.2604"],
        ),
        (
            "limit, frame of 9096 bytes",
            ["995.8223", "995.8223", "995.8223"],
        ),
        (
            "card to card, payload 1498",
            ["975.0565", "975.2604", "975.2604"],
        ),
        (
            "card to card, payload 9054",
            ["995.1155", "995.8205", "995.8205"],
        ),
        (
            "card to host, 1512 bytes a transfer",
            ["665.6390", "665.6390", "665.6390"],
        ),
        (
            "card to host, 9072 bytes a transfer",
            ["922.8537", "922.8537", "922.8537"],
        ),
        (
            "  the longer ones faster by, %",
            ["more than 38.6", "38.6418", "38.6418"],
        ),
        ("bus, at most, MB/s", ["about 125", "125.02", "-"]),
        ("frames in a chunk of 64 KB, out", ["43", "43", "43"]),
        ("frames in a chunk of 64 KB, in", ["42", "42", "42"]),
        ("  one frame a transfer, out", ["-", "659.4757", "659.4757"]),
        (
            "  fragmentation, 43 a transfer",
            ["Ethernet limit", "975.2604", "975.2604"],
        ),
        ("  one frame a transfer, in", ["-", "659.4757", "659.4757"]),
        (
            "  coalescing, 42 a transfer",
            ["Ethernet limit", "975.2604", "975.2604"],
        ),
        (
            "  both, host to host",
            ["Ethernet limit", "975.2604", "975.2604"],
        ),
        (
            "  line takes over at, frames a transfer",
            ["in a drawing", "32", "32"],
        ),
    ];
    for (what, figures) in expected {
        assert_eq!(row(&cells, what, &[1, 2, 3]), figures, "{what}");
    }
    assert_eq!(
        row(&cells, "conventional host, quoted from others", &[1, 2, 3]),
        ["409", "-", "-"]
    );
}

#[test]
fn formula_and_virtual_time_agree_for_every_number_of_fragments() {
    for (bus, line) in [("pci32-33", "1g"), ("pci64-66", "1g"), ("pci64-33", "10g")] {
        let tables = Tables::new(bus, line).unwrap();
        let cells = sheet(&tables, "fragmentation").cells();
        assert_eq!(cells.len(), 43);
        for cells in &cells {
            assert_eq!(cells[3], cells[4], "{bus} {line}: {cells:?}");
        }
    }
    let tables = tables();
    let cells = sheet(tables, "fragmentation").cells();
    for (frames, model, limit) in [
        ("1", "659.4757", "bus"),
        ("2", "791.9061", "bus"),
        ("4", "880.2927", "bus"),
        ("8", "932.3220", "bus"),
        ("16", "960.7133", "bus"),
        ("31", "975.0811", "bus"),
        ("32", "975.2604", "line"),
        ("43", "975.2604", "line"),
    ] {
        assert_eq!(row(&cells, frames, &[4, 5]), [model, limit], "{frames}");
    }
}

#[test]
fn tables_fit_a_terminal() {
    for (bus, line) in [("pci32-33", "1g"), ("pci64-66", "100g")] {
        let text = Tables::new(bus, line).unwrap().text();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line}");
        }
        let assumed = text.contains("The bus is an assumption");
        assert_eq!(assumed, bus != "pci32-33");
    }
}

#[test]
fn ways_differ_in_what_they_leave_to_the_host() {
    let tables = tables();
    let cells = sheet(tables, "offloads").cells();
    // Five ways and an MTU of 9000; no datagram is cut to 64 bytes, and no frame of 9000 bytes either.
    assert_eq!(cells.len(), 6 * 6 - 2);
    let of = |traffic: &str, way: &str| {
        let mut rows = cells
            .iter()
            .filter(|cells| cells[10] == traffic && cells[0].trim() == way);
        let row = rows.next().unwrap();
        [row[1], row[2], row[3], row[4], row[8], row[9]]
    };
    let flow = "one flow";
    assert_eq!(
        of(flow, "single"),
        ["684.9", "684.9", "684.9", "100.0", "642.2", "23.11"]
    );
    assert_eq!(
        of(flow, "segments"),
        ["18.5", "499.8", "18.5", "100.0", "854.4", "0.00"]
    );
    assert_eq!(
        of(flow, "datagrams"),
        ["15.3", "503.8", "15.3", "100.0", "865.4", "0.10"]
    );
    assert_eq!(
        of(flow, "chunks"),
        ["18.5", "18.5", "684.9", "100.0", "854.4", "0.00"]
    );
    assert_eq!(
        of(flow, "placement"),
        ["37.1", "18.5", "684.9", "0.0", "854.4", "0.00"]
    );
    assert_eq!(
        of(flow, "MTU 9000"),
        ["111.6", "558.0", "111.6", "100.0", "892.2", "0.00"]
    );
    // Chunks do not ask whose a frame is, and what is missing.
    assert_eq!(of("8 flows mixed", "chunks"), of(flow, "chunks"));
    assert_eq!(of("8 flows mixed", "segments")[0], "112.3");
    assert_eq!(of("1 % lost", "segments")[0], "22.1");
    assert_eq!(of("1 % lost", "datagrams")[4..], ["556.6", "35.35"]);
    assert_eq!(of("1 % lost", "placement")[3], "30.7");
}

#[test]
fn the_timer_decides_where_frames_are_few() {
    let tables = tables();
    let cells = sheet(tables, "coalescing").cells();
    assert_eq!(cells.len(), 42 * 7);
    let of = |frames: &str, timer: &str| {
        let mut rows = cells.iter().filter(|cells| cells[..2] == [frames, timer]);
        rows.next().unwrap()[2..].to_vec()
    };
    let full = ["975.26", "756.2", "1001.9", "1001.9", "0"];
    assert_eq!(of("42", "500")[..5], full);
    let single = of("1", "0");
    assert_eq!(single, of("1", "1000"));
    assert_eq!(single[..4], ["659.48", "2356.2", "2362.2", "2362.3"]);
    assert_eq!(of("42", "100")[5..], ["1.0", "118.2", "118.2", "118.2"]);
    assert_eq!(of("42", "1000")[5..], ["9.0", "623.4", "1114.9", "1114.9"]);
}

#[test]
fn payloads_and_mtus_meet_the_limit_in_chunks() {
    let tables = tables();
    let cells = sheet(tables, "payloads").cells();
    assert_eq!(
        row(&cells, "46", &[1, 2, 3, 4]),
        ["547.6190", "56.1169", "547.6190", "1092"]
    );
    assert_eq!(
        row(&cells, "1498", &[1, 2, 3, 4]),
        ["975.2604", "659.4757", "975.2604", "43"]
    );
    assert_eq!(
        row(&cells, "9000", &[1, 2, 3, 4]),
        ["995.7955", "920.9624", "986.7132", "7"]
    );
    let cells = sheet(tables, "mtus").cells();
    assert_eq!(
        row(&cells, "1500", &[1, 2, 3]),
        ["949.2848", "642.1813", "949.2848"]
    );
    assert_eq!(
        row(&cells, "65521", &[1, 2, 3, 4]),
        ["998.8102", "987.8709", "987.8709", "1"]
    );
}

#[test]
fn interrupts_end_in_livelock_and_polling_does_not() {
    let tables = tables();
    let cells = sheet(tables, "host").cells();
    assert_eq!(cells.len(), 20);
    assert_eq!(row(&cells, "60", &[1, 3, 5]), ["60.0"; 3]);
    assert_eq!(row(&cells, "100", &[1, 3, 5]), ["50.0", "99.8", "90.0"]);
    assert_eq!(
        row(&cells, "200", &[1, 2, 3, 5]),
        ["0.0", "-", "100.0", "88.9"]
    );
}

#[test]
fn every_bus_meets_every_line() {
    let tables = tables();
    let cells = sheet(tables, "buses_and_lines").cells();
    assert_eq!(cells.len(), BUSES.len() * LINES.len());
    assert_eq!(
        cells[0],
        ["pci32-33", "1g", "975.2604", "659.4757", "975.2604", "32"]
    );
    assert_eq!(
        cells[15],
        [
            "pci64-66",
            "100g",
            "97526.0417",
            "1316.7261",
            "3786.5399",
            "-"
        ]
    );
}

#[test]
fn programs_get_numbers_and_all_rows() {
    let json = tables().json();
    assert_eq!(json["bus"]["per_transfer_ps"], 6_077_811);
    assert_eq!(json["bus"]["bit_s"], 1_000_148_738);
    assert_eq!(json["bus"]["assumed"], false);
    assert_eq!(json["line"]["bit_s"], 1_000_000_000);
    let rows = |name: &str| json["tables"][name]["rows"].as_array().unwrap().clone();
    assert_eq!(rows("dissertation")[0]["source"], 952.0202);
    assert_eq!(rows("dissertation")[18]["model"], Value::Null);
    assert_eq!(rows("fragmentation").len(), 43);
    assert_eq!(rows("fragmentation")[42]["frames"], 43);
    assert_eq!(rows("fragmentation")[42]["limit"], "line");
    // The groups of people's table are a key.
    assert_eq!(rows("offloads")[33]["traffic"], "1 % lost");
    let other = Tables::new("pci64-66", "100g").unwrap().json();
    assert_eq!(other["bus"]["assumed"], true);
    assert!(Tables::new("pci", "1g").is_none() && Tables::new("pci32-33", "1").is_none());
}

/// No time and no machine takes part, so the pages hold what anybody's command prints.
#[test]
fn the_pages_hold_these_tables() {
    let results = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/results");
    let page = |name: &str| std::fs::read_to_string(format!("{results}/{name}")).unwrap();
    assert_eq!(
        tables().text().trim_end(),
        page("card-table.txt").trim_end()
    );
    let raw = serde_json::to_string_pretty(&tables().json()).unwrap();
    assert_eq!(raw, page("card-table.json").trim_end());
}
