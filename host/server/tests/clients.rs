//! Clients that we did not write, against the servers on the loopback interface.

#![allow(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test"
)]

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use wireboot_server::directory::Directory;
use wireboot_server::event::{Console, Events};
use wireboot_server::http::HttpServer;
use wireboot_server::stop::Stop;
use wireboot_server::tftp::{TftpConfig, TftpServer};

const ANY: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0);

/// Servers of a temporary directory with the file `file` and a way out of it.
struct House {
    directory: tempfile::TempDir,
    content: Vec<u8>,
    tftp: SocketAddr,
    http: SocketAddr,
    stop: Stop,
}

impl House {
    fn new(size: usize) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let served = directory.path().join("served");
        fs::create_dir(&served).unwrap();
        let content: Vec<u8> = (0..size)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::write(served.join("file"), &content).unwrap();
        fs::write(directory.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", served.join("outward")).unwrap();
        let shared = Arc::new(Directory::open(&served, None).unwrap());
        let log = fs::File::create(directory.path().join("events")).unwrap();
        let events = Events::new(Console::Silent, Some(log));
        let config = TftpConfig {
            listen: ANY.into(),
            max_window: 512,
            networks: None,
        };
        let server = TftpServer::bind(config, shared.clone(), events.clone()).unwrap();
        let tftp = server.local_addr().unwrap();
        let stop = Stop::default();
        let flag = stop.clone();
        std::thread::spawn(move || server.run(&flag).unwrap());
        let server = HttpServer::bind(ANY, shared, None, events).unwrap();
        let http = server.local_addr().unwrap();
        let flag = stop.clone();
        std::thread::spawn(move || server.run(&flag).unwrap());
        Self {
            directory,
            content,
            tftp,
            http,
            stop,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn events(&self) -> Vec<serde_json::Value> {
        let text = fs::read_to_string(self.path("events")).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    /// Waits for an event, which may be recorded a moment after the client has all it wants.
    fn event(&self, name: &str) -> serde_json::Value {
        for _ in 0..500 {
            if let Some(event) = self
                .events()
                .into_iter()
                .find(|event| event["event"] == name)
            {
                return event;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("no {name} in {:?}", self.events());
    }

    fn curl(&self, arguments: &[&str], url: &str) -> Output {
        run(Command::new("curl")
            .args(["-sS", "--path-as-is", "--max-time", "60"])
            .args(arguments)
            .arg(url))
    }
}

impl Drop for House {
    fn drop(&mut self) {
        self.stop.set();
    }
}

/// Runs a client; one that is not there is a failure, as the test would else show nothing.
fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| {
        panic!("{command:?}: {error} (Debian packages curl, atftp, tftp-hpa)")
    })
}

#[test]
fn requests_that_nobody_answers_for_shut_nobody_out() {
    let house = House::new(1000);
    // Each from a port of its own, which hears what comes and says nothing.
    let forged: Vec<_> = (0..300)
        .map(|_| {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket
                .send_to(b"\0\x01file\0octet\0timeout\x00255\0", house.tftp)
                .unwrap();
            socket
        })
        .collect();
    let url = format!("tftp://{}/file", house.tftp);
    for _ in 0..3 {
        let output = house.curl(&["--max-time", "6"], &url);
        assert!(output.stdout == house.content, "{output:?}");
    }
    drop(forged);
}

#[test]
fn each_transfer_is_told_once_and_from_where_on() {
    let house = House::new(100_000);
    let tftp = format!("tftp://{}/file", house.tftp);
    assert!(house.curl(&["--tftp-blksize", "512"], &tftp).stdout == house.content);
    house.event("tftp-done");
    let http = format!("http://{}/file", house.http);
    assert!(house.curl(&[], &http).stdout == house.content);
    assert!(house.curl(&["--range", "5-"], &http).stdout == house.content[5..]);
    let starts = |name: &str| -> Vec<_> {
        let events = house.events().into_iter();
        let starts = events.filter(|event| event["event"] == name);
        starts.map(|event| event["message"].clone()).collect()
    };
    assert_eq!(starts("tftp-start").len(), 1);
    assert_eq!(
        starts("http-start"),
        [serde_json::Value::Null, "from byte 5 on".into()]
    );
}

#[test]
fn curl_reads_by_tftp() {
    // Not an empty file: curl 7.88 fails at one ("getpeername() failed"), whatever the server.
    for size in [1, 511, 512, 513, 1_000_000] {
        let house = House::new(size);
        let url = format!("tftp://{}/file", house.tftp);
        for options in [
            &["--tftp-blksize", "512"][..],
            &["--tftp-blksize", "1468"],
            &["--tftp-no-options"],
        ] {
            let output = house.curl(options, &url);
            assert!(output.status.success(), "{output:?}");
            assert!(
                output.stdout == house.content,
                "{size} bytes with {options:?}"
            );
        }
        let done = house.event("tftp-done");
        assert_eq!(
            (&done["bytes"], &done["client"], &done["file"]),
            (&size.into(), &"127.0.0.1".into(), &"file".into())
        );
        assert!(done["seconds"].as_f64().unwrap() > 0.0);
    }
}

#[test]
fn atftp_reads_with_windows() {
    let house = House::new(3_000_000);
    for (block, window) in [
        ("1468", "1"),
        ("1468", "64"),
        ("512", "16"),
        ("8192", "33"),
        ("1468", "2000"),
    ] {
        let got = house.path("got");
        let options = [
            format!("blksize {block}"),
            format!("windowsize {window}"),
            "tsize 0".to_owned(),
        ];
        let mut atftp = Command::new("atftp");
        for option in &options {
            atftp.args(["--option", option]);
        }
        let output = run(atftp
            .args(["-g", "-r", "file", "-l"])
            .arg(&got)
            .args(["127.0.0.1", &house.tftp.port().to_string()]));
        assert!(output.status.success(), "{output:?}");
        assert!(fs::read(&got).unwrap() == house.content, "{options:?}");
        fs::remove_file(got).unwrap();
    }
}

#[test]
fn tftp_hpa_reads_an_empty_file() {
    let house = House::new(0);
    let port = house.tftp.port().to_string();
    let mut tftp = Command::new("tftp");
    let output = run(tftp.current_dir(house.directory.path()).args([
        "127.0.0.1",
        &port,
        "-m",
        "binary",
        "-c",
        "get",
        "file",
        "got",
    ]));
    assert_eq!(fs::read(house.path("got")).unwrap(), b"", "{output:?}");
    assert_eq!(house.event("tftp-done")["bytes"], 0);
}

#[test]
fn tftp_hpa_reads_and_cannot_write() {
    let house = House::new(70_000);
    let port = house.tftp.port().to_string();
    let tftp = |mode: &str, command: &[&str]| {
        run(Command::new("tftp")
            .current_dir(house.directory.path())
            .args(["127.0.0.1", &port, "-m", mode, "-c"])
            .args(command))
    };
    let output = tftp("binary", &["get", "file", "got"]);
    assert!(
        fs::read(house.path("got")).unwrap() == house.content,
        "{output:?}"
    );
    let output = tftp("binary", &["put", "got", "written"]);
    assert!(
        String::from_utf8_lossy(&output.stdout).contains("only reads"),
        "{output:?}"
    );
    assert!(!house.path("served/written").exists());
}

#[test]
fn what_cannot_be_read_is_refused_with_a_reason() {
    let house = House::new(10);
    for (name, code, reason) in [
        ("nothing", 1, "no such file"),
        ("../secret", 2, "leads out"),
        ("outward", 2, "leads out"),
        ("", 2, "not a regular file"),
    ] {
        let socket = UdpSocket::bind(ANY).unwrap();
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        socket
            .send_to(format!("\0\x01{name}\0octet\0").as_bytes(), house.tftp)
            .unwrap();
        let mut answer = [0; 600];
        let length = socket.recv(&mut answer).unwrap();
        assert_eq!(answer[..4], [0, 5, 0, code], "{name}");
        let text = String::from_utf8_lossy(&answer[4..length]);
        assert!(
            text.contains(reason) && text.ends_with('\0'),
            "{name}: {text}"
        );

        let output = house.curl(
            &["-o", "/dev/null", "-w", "%{http_code}"],
            &format!("http://{}/{name}", house.http),
        );
        let status = if code == 2 && !name.is_empty() {
            "403"
        } else {
            "404"
        };
        assert_eq!(String::from_utf8_lossy(&output.stdout), status, "{name}");
    }
    assert!(
        house.event("tftp-error")["message"]
            .as_str()
            .unwrap()
            .contains("no such file")
    );
}

#[test]
fn a_client_that_only_wants_the_size_is_no_error() {
    let house = House::new(12_345);
    let socket = UdpSocket::bind(ANY).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    socket
        .send_to(b"\0\x01file\0octet\0tsize\x000\0", house.tftp)
        .unwrap();
    let mut answer = [0; 600];
    let (length, server) = socket.recv_from(&mut answer).unwrap();
    assert_eq!(&answer[..length], b"\0\x06tsize\x0012345\0");
    socket
        .send_to(b"\0\x05\0\x08that is all\0", server)
        .unwrap();
    assert_eq!(house.event("tftp-size")["bytes"], 12_345);
}

#[test]
fn curl_reads_by_http() {
    let house = House::new(2_000_000);
    let url = format!("http://{}/file", house.http);
    let output = house.curl(&[], &url);
    assert!(
        output.status.success() && output.stdout == house.content,
        "{:?}",
        output.stderr
    );
    let output = house.curl(&["-r", "1999000-"], &url);
    assert!(output.stdout == house.content[1_999_000..]);
    let output = house.curl(&["-r", "0-0"], &url);
    assert!(output.stdout == house.content[..1]);
    // A broken download goes on where it stopped.
    let partial = house.path("partial");
    fs::write(&partial, &house.content[..777_777]).unwrap();
    let output = house.curl(&["-C", "-", "-o", partial.to_str().unwrap()], &url);
    assert!(output.status.success(), "{output:?}");
    assert!(fs::read(&partial).unwrap() == house.content);
    let done = house.event("http-done");
    assert_eq!(
        (&done["bytes"], &done["file"]),
        (&2_000_000.into(), &"/file".into())
    );
}

#[test]
fn http_heads_validators_and_kept_connections() {
    let house = House::new(100_000);
    let url = format!("http://{}/file", house.http);
    let headers = String::from_utf8(house.curl(&["-I"], &url).stdout)
        .unwrap()
        .to_lowercase();
    assert!(headers.starts_with("http/1.1 200"), "{headers}");
    for wanted in [
        "content-length: 100000\r",
        "accept-ranges: bytes\r",
        "etag: \"",
        "last-modified: ",
    ] {
        assert!(headers.contains(wanted), "{headers}");
    }
    let tag = headers
        .lines()
        .find_map(|line| line.strip_prefix("etag: "))
        .unwrap()
        .trim();
    let status = |arguments: &[&str]| {
        let output = house.curl(
            &[&["-o", "/dev/null", "-w", "%{http_code}"], arguments].concat(),
            &url,
        );
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(status(&["-H", &format!("If-None-Match: {tag}")]), "304");
    assert_eq!(
        status(&["-r", "5-", "-H", &format!("If-Range: {tag}")]),
        "206"
    );
    assert_eq!(status(&["-r", "5-", "-H", "If-Range: \"another\""]), "200");
    assert_eq!(status(&["-r", "100000-"]), "416");
    assert_eq!(status(&["-X", "DELETE"]), "405");
    assert_eq!(status(&["-d", "x"]), "405");
    let output = house.curl(
        &[
            "-o",
            "/dev/null",
            "-o",
            "/dev/null",
            "-w",
            "%{num_connects}",
            &url,
        ],
        &url,
    );
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "10",
        "the second request opens no connection"
    );
    let program = house.path("served/A B.EFI");
    fs::write(&program, "x").unwrap();
    let url = format!("http://{}/A%20B.EFI", house.http);
    let output = house.curl(&["-w", "%{content_type}"], &url);
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        "xapplication/efi"
    );
}

/// Everything that the server says to these bytes before it closes the connection.
fn conversation(house: &House, said: &str) -> String {
    let mut stream = TcpStream::connect(house.http).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(10)))
        .unwrap();
    stream.write_all(said.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn http_requests_in_a_row_are_answered_in_a_row() {
    let house = House::new(0);
    fs::write(house.path("served/text"), "bytes").unwrap();
    let answer = conversation(
        &house,
        "GET /text HTTP/1.1\r\n\r\nHEAD /text HTTP/1.1\r\n\r\nHEAD /none HTTP/1.1\r\n\r\n\
         GET /file HTTP/1.1\r\n\r\nGET /text HTTP/1.1\r\nRange: bytes=1-2\r\nConnection: close\r\n\r\n\
         GET /text HTTP/1.1\r\n\r\n",
    );
    let parts: Vec<&str> = answer.split("\r\n\r\n").collect();
    let bodies = ["bytes", "", "", "", "yt"];
    assert_eq!(parts.len(), bodies.len() + 1, "{answer}");
    for (number, (head, expected)) in [
        "HTTP/1.1 200 OK",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 404 Not Found",
        "HTTP/1.1 200 OK",
        "HTTP/1.1 206 Partial Content",
    ]
    .into_iter()
    .zip(bodies)
    .enumerate()
    {
        assert!(parts[number].contains(head), "{answer}");
        assert!(parts[number + 1].starts_with(expected), "{answer}");
    }
    assert!(answer.ends_with("\r\n\r\nyt"), "{answer}");
}

#[test]
fn http_refusals_reach_the_client() {
    let house = House::new(10);
    let body = "x".repeat(100_000);
    for (said, status) in [
        ("no request\r\n\r\n".to_owned(), "400"),
        ("GET / HTTP/3.0\r\n\r\n".to_owned(), "505"),
        (format!("GET /{body} HTTP/1.1\r\n\r\n"), "431"),
        (
            format!("POST / HTTP/1.1\r\nContent-Length: 100000\r\n\r\n{body}"),
            "405",
        ),
        ("GET /none HTTP/1.0\r\n\r\n".to_owned(), "404"),
    ] {
        let answer = conversation(&house, &said);
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
    }
}

#[test]
fn an_http_client_that_reads_nothing_holds_up_nobody() {
    let house = House::new(30_000_000);
    let idle: Vec<TcpStream> = (0..20)
        .map(|_| {
            let mut stream = TcpStream::connect(house.http).unwrap();
            stream.write_all(b"GET /file HTTP/1.1\r\n\r\n").unwrap();
            stream
        })
        .collect();
    let url = format!("http://{}/file", house.http);
    assert!(house.curl(&[], &url).stdout == house.content);
    drop(idle);
    let message = house.event("http-error")["message"].to_string();
    assert!(message.contains("closed the connection"), "{message}");
}

#[test]
fn many_tftp_clients_at_once() {
    let house = House::new(300_000);
    let url = format!("tftp://{}/file", house.tftp);
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                assert!(house.curl(&["--tftp-blksize", "1400"], &url).stdout == house.content)
            });
        }
    });
}

#[test]
fn a_file_beyond_4_gib_is_served() {
    let house = House::new(0);
    let size = (4u64 << 30) + 4321;
    let file = fs::File::create(house.path("served/large")).unwrap();
    file.set_len(size).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"end", size - 3).unwrap();
    let url = format!("http://{}/large", house.http);
    assert_eq!(house.curl(&["-r", "-3"], &url).stdout, b"end");
    let head = String::from_utf8(house.curl(&["-I"], &url).stdout).unwrap();
    assert!(
        head.contains(&format!("Content-Length: {size}\r")),
        "{head}"
    );
}
