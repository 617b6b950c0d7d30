//! The servers beside the machine. The same for every stack: dnsmasq for addresses, atftpd for TFTP, nginx for HTTP; or `wireboot serve`
//! for all three.

use std::fs::{self, File};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use wireboot_lab::ip::{IpVersion, host};
use wireboot_lab::netns::Lab;
use wireboot_lab::network::{self, INTERFACE};
use wireboot_lab::{atftpd, nginx, server};

/// What the DHCP server tells the firmware to boot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootFile {
    /// A file's name for PXE, which is fetched by TFTP, or a URL.
    pub firmware: String,
    /// What iPXE gets when it asks in turn: the name of a script.
    pub ipxe: Option<String>,
    /// What wireboot gets when it asks in turn: the URL of its configuration.
    pub wireboot: Option<String>,
}

/// A running server. It ends with this value.
#[derive(Debug)]
struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Server processes of the lab; dropping this kills them.
#[derive(Debug)]
pub struct Servers(Vec<Process>);

impl Servers {
    /// dnsmasq, atftpd and nginx, which offer the files in `root`.
    ///
    /// # Errors
    /// When one does not start.
    pub fn others(lab: &Lab, root: &Path, boot: &BootFile, ip: IpVersion) -> Result<Self> {
        let scratch = lab.scratch();
        let settings = scratch.join("dnsmasq.conf");
        let leases = scratch.join("dnsmasq.leases");
        let _ = fs::remove_file(&leases);
        fs::write(&settings, dnsmasq(boot, &leases, ip))
            .context("writing dnsmasq's configuration")?;
        let mut addresses = lab.command("dnsmasq");
        addresses
            .args([
                "--keep-in-foreground",
                "--pid-file",
                "--log-facility=-",
                "--user=root",
                "--group=root",
                "-C",
            ])
            .arg(&settings);

        let tftp = atftpd::serve(lab.command("atftpd"), network::server(ip), root)?;

        let http = nginx::serve(lab.command("nginx"), network::server(ip), root, scratch)?;

        let mut servers = Self(Vec::new());
        servers.start(lab, "dnsmasq", addresses)?;
        servers.start(lab, "atftpd", tftp)?;
        servers.start(lab, "nginx", http)?;
        servers.await_http(ip)?;
        Ok(servers)
    }

    /// `wireboot serve`, which offers the files in `root` and `firmware_file` to the firmware. `program` is the wireboot command.
    ///
    /// # Errors
    /// When it does not start.
    pub fn ours(
        lab: &Lab,
        program: &Path,
        root: &Path,
        firmware_file: &Path,
        ip: IpVersion,
    ) -> Result<Self> {
        let mut command = lab.command(program);
        command
            .arg("serve")
            .arg(root)
            .args(server::AS_ROOT)
            .args(["--interface", INTERFACE, "--authoritative", "--nbp"])
            .arg(firmware_file)
            .arg("--leases")
            .arg(lab.scratch().join("server.leases"))
            .args(server::advertise(ip));
        let mut servers = Self(Vec::new());
        servers.start(lab, "wireboot serve", command)?;
        servers.await_http(ip)?;
        Ok(servers)
    }

    fn start(
        &mut self,
        lab: &Lab,
        name: &'static str,
        mut command: std::process::Command,
    ) -> Result<()> {
        let log = lab
            .scratch()
            .join(format!("{}.log", name.replace(' ', "-")));
        let file = File::create(&log).with_context(|| format!("making {}", log.display()))?;
        command.stdout(file.try_clone()?).stderr(file);
        let child = command
            .spawn()
            .with_context(|| format!("starting {name}: is it installed?"))?;
        self.0.push(Process { name, child, log });
        Ok(())
    }

    /// Waits until the HTTP server, the last to be started, answers.
    fn await_http(&mut self, ip: IpVersion) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let address = SocketAddr::from((network::server(ip), 80));
        loop {
            self.check()?;
            if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("no HTTP server answers at {address}");
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether all of them still run.
    ///
    /// # Errors
    /// When one has ended, with what it said last.
    pub fn check(&mut self) -> Result<()> {
        for process in &mut self.0 {
            if let Some(status) = process
                .child
                .try_wait()
                .with_context(|| format!("waiting for {}", process.name))?
            {
                let said = fs::read_to_string(&process.log).unwrap_or_default();
                bail!(
                    "{} ended ({status}): {}",
                    process.name,
                    said.lines().last().unwrap_or_default()
                );
            }
        }
        Ok(())
    }
}

fn dnsmasq(boot: &BootFile, leases: &Path, ip: IpVersion) -> String {
    let mut text = format!(
        "port=0\ninterface={INTERFACE}\nexcept-interface=lo\nbind-interfaces\nno-ping\n\
         dhcp-leasefile={}\n\
         dhcp-userclass=set:second,wireboot\ndhcp-userclass=set:wireboot,wireboot\n",
        leases.display(),
    );
    text.push_str(match ip {
        // iPXE would wait seconds for a proxyDHCP server (no-pxedhcp, https://ipxe.org/howto/dhcpd). shim reads the name of its own file from
        // the packet's field for it, and looks for GRUB beside it.
        IpVersion::V4 => {
            "dhcp-option=encap:175,176,1b\ndhcp-no-override\n\
             dhcp-range=10.77.0.50,10.77.0.99,255.255.255.0\n\
             dhcp-match=set:second,175\ndhcp-match=set:ipxe,175\n\
             dhcp-vendorclass=set:http,HTTPClient\ndhcp-option-force=tag:http,60,HTTPClient\n"
        }
        // dnsmasq writes the vendor class as texts with their lengths, so the first one stands for the enterprise number.
        IpVersion::V6 => {
            "enable-ra\ndhcp-range=fd00:77::50,fd00:77::99,64\n\
             dhcp-userclass=set:second,iPXE\ndhcp-userclass=set:ipxe,iPXE\n\
             dhcp-match=set:http,option6:61,16\ndhcp-option=tag:http,option6:16,ab,HTTPClient\n"
        }
    });
    let files = [
        ("!second", Some(&boot.firmware)),
        ("ipxe", boot.ipxe.as_ref()),
        ("wireboot", boot.wireboot.as_ref()),
    ];
    text.extend(files.into_iter().filter_map(|(tag, file)| {
        let file = file?;
        Some(match ip {
            IpVersion::V4 => format!("dhcp-boot=tag:{tag},{file}\n"),
            IpVersion::V6 => {
                let url = url(file, ip);
                format!("dhcp-option=tag:{tag},option6:bootfile-url,{url}\n")
            }
        })
    }));
    text
}

/// DHCPv6 knows URLs alone.
fn url(file: &str, ip: IpVersion) -> String {
    if file.contains("://") {
        return file.to_owned();
    }
    format!("tftp://{}/{file}", host(network::server(ip)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_loaders_get_files_of_their_own() {
        let boot = BootFile {
            firmware: "first.efi".into(),
            ipxe: Some("script.ipxe".into()),
            wireboot: None,
        };
        let text = dnsmasq(&boot, Path::new("/tmp/leases"), IpVersion::V4);
        assert!(text.contains("dhcp-boot=tag:!second,first.efi\n"));
        assert!(text.contains("dhcp-boot=tag:ipxe,script.ipxe\n"));
        assert!(!text.contains("dhcp-boot=tag:wireboot"));
        assert!(text.contains("dhcp-option=encap:175,176,1b\n"));

        let text = dnsmasq(&boot, Path::new("/tmp/leases"), IpVersion::V6);
        for (tag, file) in [("!second", "first.efi"), ("ipxe", "script.ipxe")] {
            let line =
                format!("dhcp-option=tag:{tag},option6:bootfile-url,tftp://[fd00:77::1]/{file}\n");
            assert!(text.contains(&line), "{text}");
        }
        assert!(!text.contains("tag:wireboot,"));
    }
}
