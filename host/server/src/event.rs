//! What the server did, for people (a line on standard error) and for programs (JSON lines in a file).

use std::fs::File;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde::Serialize;

/// What kind of event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A DHCPDISCOVER arrived.
    DhcpDiscover,
    /// A DHCPOFFER was sent.
    DhcpOffer,
    /// A DHCPREQUEST arrived.
    DhcpRequest,
    /// A DHCPACK was sent.
    DhcpAck,
    /// A DHCPNAK was sent.
    DhcpNak,
    /// The client found its address in use.
    DhcpDecline,
    /// The client gave its address back.
    DhcpRelease,
    /// A client asked for more than its address.
    DhcpInform,
    /// The request was understood, but nothing can be answered to it.
    DhcpIgnored,
    /// A DHCPv6 message arrived; the words say which.
    Dhcpv6Request,
    /// A DHCPv6 Advertise was sent.
    Dhcpv6Advertise,
    /// A DHCPv6 Reply was sent.
    Dhcpv6Reply,
    /// The DHCPv6 message was understood, but what it asks for cannot be given.
    Dhcpv6Ignored,
    /// The first block of a file is about to be sent.
    TftpStart,
    /// The last block of a file was acknowledged.
    TftpDone,
    /// A client asked for the size of a file only.
    TftpSize,
    /// A request was refused or a transfer failed.
    TftpError,
    /// A response with a file begins.
    HttpStart,
    /// The last byte of a file was handed to TCP.
    HttpDone,
    /// A request was refused or a response broke off.
    HttpError,
    /// Anything about the server itself.
    Server,
}

impl Kind {
    fn label(self) -> &'static str {
        match self {
            Self::DhcpDiscover => "DHCP discover",
            Self::DhcpOffer => "DHCP offer",
            Self::DhcpRequest => "DHCP request",
            Self::DhcpAck => "DHCP ack",
            Self::DhcpNak => "DHCP nak",
            Self::DhcpDecline => "DHCP decline",
            Self::DhcpRelease => "DHCP release",
            Self::DhcpInform => "DHCP inform",
            Self::DhcpIgnored => "DHCP ignored",
            Self::Dhcpv6Request => "DHCPv6 request",
            Self::Dhcpv6Advertise => "DHCPv6 advertise",
            Self::Dhcpv6Reply => "DHCPv6 reply",
            Self::Dhcpv6Ignored => "DHCPv6 ignored",
            Self::TftpStart => "TFTP start",
            Self::TftpDone => "TFTP done",
            Self::TftpSize => "TFTP size",
            Self::TftpError => "TFTP error",
            Self::HttpStart => "HTTP start",
            Self::HttpDone => "HTTP done",
            Self::HttpError => "HTTP error",
            Self::Server => "server",
        }
    }
}

/// One thing that happened. Fields that do not apply are left out of the JSON.
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Seconds since 1970-01-01 00:00 UTC.
    pub time: f64,
    /// What happened.
    pub event: Kind,
    /// IP address of the client, or its MAC address while it has none; empty for the server's own events.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub client: String,
    /// What a DHCPv6 server knows the client by, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub duid: Option<String>,
    /// The file, as the client named it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// IP address offered or acknowledged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Bytes of the file: in a start event those to be sent, else those that were.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Seconds from the request to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// More, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

impl Event {
    /// An event that happens now.
    pub fn now(event: Kind, client: impl ToString) -> Self {
        let time = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Self {
            time: time.as_secs_f64(),
            event,
            client: client.to_string(),
            duid: None,
            file: None,
            address: None,
            bytes: None,
            seconds: None,
            message: None,
        }
    }

    /// With the client's DUID.
    pub fn duid(mut self, duid: &[u8]) -> Self {
        self.duid = Some(duid.iter().map(|byte| format!("{byte:02x}")).collect());
        self
    }

    /// With the file's name.
    pub fn file(mut self, name: &str) -> Self {
        self.file = Some(name.to_owned());
        self
    }

    /// With the address that the client gets.
    pub fn address(mut self, address: impl ToString) -> Self {
        self.address = Some(address.to_string());
        self
    }

    /// With a number of bytes.
    pub fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = Some(bytes);
        self
    }

    /// With a duration in seconds.
    pub fn seconds(mut self, seconds: f64) -> Self {
        self.seconds = Some(seconds);
        self
    }

    /// With words.
    pub fn message(mut self, message: impl ToString) -> Self {
        self.message = Some(message.to_string());
        self
    }

    /// The line that a person reads, without its end.
    fn human(&self) -> String {
        let mut line = format!("{:<13}", self.event.label());
        for part in [&Some(self.client.clone()), &self.file, &self.address] {
            if let Some(text) = part
                && !text.is_empty()
            {
                line = line + " " + text;
            }
        }
        if let Some(bytes) = self.bytes {
            line += &format!(" {bytes} bytes");
        }
        if let Some(seconds) = self.seconds {
            line += &format!(" {seconds:.3} s");
            if let Some(bytes) = self.bytes
                && seconds > 0.0
            {
                line += &format!(" {:.0} Mbit/s", bytes as f64 * 8e-6 / seconds);
            }
        }
        match &self.message {
            Some(message) if self.event == Kind::Server => format!("wireboot: {message}"),
            Some(message) => line + ": " + message,
            None => line,
        }
    }
}

/// Where events go. Clones share the same outputs.
#[derive(Clone, Debug, Default)]
pub struct Events {
    file: Option<Arc<Mutex<File>>>,
    console: Console,
}

/// What standard error shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Console {
    /// Nothing.
    #[default]
    Silent,
    /// A readable line for each event.
    Human,
    /// A JSON line for each event.
    Json,
}

impl Events {
    /// Events to standard error as `console` says and, as JSON lines, to `file`.
    pub fn new(console: Console, file: Option<File>) -> Self {
        Self {
            file: file.map(|file| Arc::new(Mutex::new(file))),
            console,
        }
    }

    /// Records an event. A failing output must not stop the server, so it is passed over.
    pub fn record(&self, event: Event) {
        let json = serde_json::to_string(&event).unwrap_or_default() + "\n";
        if let Some(file) = &self.file {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            let _ = file.write_all(json.as_bytes());
        }
        let line = match self.console {
            Console::Silent => return,
            Console::Human => event.human() + "\n",
            Console::Json => json,
        };
        let _ = std::io::stderr().lock().write_all(line.as_bytes());
    }

    /// Records words about the server itself.
    pub fn say(&self, message: impl ToString) {
        self.record(Event::now(Kind::Server, "").message(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_lines_hold_what_applies_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let events = Events::new(Console::Silent, Some(file.reopen().unwrap()));
        events.record(
            Event::now(Kind::TftpDone, "10.0.0.2")
                .file("a b")
                .bytes(1000)
                .seconds(0.5),
        );
        let text = std::fs::read_to_string(file.path()).unwrap();
        assert!(text.ends_with('\n'));
        let json: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["event"], "tftp-done");
        assert_eq!(
            (&json["client"], &json["file"]),
            (&"10.0.0.2".into(), &"a b".into())
        );
        assert_eq!(
            (json["bytes"].as_u64(), json["seconds"].as_f64()),
            (Some(1000), Some(0.5))
        );
        assert!(json["time"].as_f64().unwrap() > 1.7e9);
        assert!(json.get("message").is_none());
    }

    #[test]
    fn people_read_the_rate() {
        let event = Event::now(Kind::TftpDone, "10.0.0.2")
            .file("linux")
            .bytes(1_000_000)
            .seconds(0.08);
        assert_eq!(
            event.human(),
            "TFTP done     10.0.0.2 linux 1000000 bytes 0.080 s 100 Mbit/s"
        );
    }
}
