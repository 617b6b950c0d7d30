//! nginx, in the lab.

use std::fs;
use std::net::IpAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use crate::ip::host;

/// Completes `command`, for nginx, to serve `directory` at port 80 of an address; its own files go to `scratch`. One process and no log: as fast as
/// nginx gets for one client, and able to run where there is only one user.
///
/// # Errors
/// When its configuration cannot be written.
pub fn serve(
    mut command: Command,
    address: IpAddr,
    directory: &Path,
    scratch: &Path,
) -> Result<Command> {
    let settings = scratch.join(format!("nginx-{address}.conf"));
    let text = configuration(address, directory, scratch);
    fs::write(&settings, text).with_context(|| format!("writing {}", settings.display()))?;
    command.arg("-c").arg(&settings).args(["-e", "stderr"]);
    Ok(command)
}

fn configuration(address: IpAddr, directory: &Path, scratch: &Path) -> String {
    let (root, own) = (directory.display(), scratch.display());
    format!(
        "daemon off;\nmaster_process off;\npid {own}/nginx-{address}.pid;\nerror_log stderr;\nevents {{}}\n\
         http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  keepalive_timeout 65;\n\
         \x20 default_type application/octet-stream;\n  types {{ application/efi efi; }}\n\
         \x20 client_body_temp_path {own}/nginx-body;\n  proxy_temp_path {own}/nginx-proxy;\n\
         \x20 fastcgi_temp_path {own}/nginx-fastcgi;\n  uwsgi_temp_path {own}/nginx-uwsgi;\n  scgi_temp_path {own}/nginx-scgi;\n\
         \x20 server {{ listen {}:80; root {root}; }}\n}}\n",
        host(address)
    )
}
