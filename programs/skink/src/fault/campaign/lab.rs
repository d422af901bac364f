//! A client's machine, and a server's with a stack and the programs that it serves.
use super::CampaignOptions;
use crate::failure::Failure;
use crate::tools::{self, Found};
use skink_testbed::{Cable, Host, Process, Scratch};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The server's address.
pub const SERVER: &str = "10.9.0.2";
/// The client's, where the name server is too.
pub const CLIENT: &str = "10.9.0.1";
/// Where the name server is.
pub const NAMES: u16 = 5300;
/// Where sshd listens.
pub const SSH: u16 = 2222;
/// What the stack is called.
const NAME: &str = "fault-campaign";
/// A filter that has forgotten a connection resets it.
const RULES: &str = "\
set block-policy return
block proto tcp all
pass in proto tcp to port { 80, 2222, 5201 } flags S/SA keep state
pass proto udp all keep state
";

/// Everything but the load.
pub struct Lab {
    programs: Vec<Process>,
    up: Option<Process>,
    pub client: Host,
    server: Host,
    files: Scratch,
    topology: String,
    recovery: Option<String>,
}

impl Lab {
    pub fn new(options: &CampaignOptions) -> io::Result<Lab> {
        let (client, server) = (Host::new()?, Host::new()?);
        server.cable("wire", &client, "wire", Cable::default())?;
        client.address("wire", &format!("{CLIENT}/24"))?;
        let mut lab = Lab {
            programs: Vec::new(),
            up: None,
            client,
            server,
            files: Scratch::new("fault")?,
            topology: options.topology.clone(),
            recovery: options.recovery.clone(),
        };
        lab.write_files()?;
        lab.start()?;
        Ok(lab)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn write_files(&self) -> io::Result<()> {
        let directory = self.files.path().display().to_string();
        std::fs::create_dir_all("/run/sshd")?;
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f"]);
            if !keygen.arg(self.path(name)).status()?.success() {
                return Err(io::Error::other("ssh-keygen failed"));
            }
        }
        let site = self.path("site");
        std::fs::create_dir_all(&site)?;
        std::fs::write(site.join("page"), page())?;
        std::fs::write(self.path("rules.conf"), RULES)?;
        let nginx = format!(
            "user root; worker_processes 2; daemon off; pid {directory}/pid; error_log stderr;
             events {{ worker_connections 1024; }}
             http {{ access_log off; keepalive_requests 1000000; keepalive_timeout 600s;
                 client_body_temp_path {directory}/body; proxy_temp_path {directory}/proxy;
                 fastcgi_temp_path {directory}/fastcgi; uwsgi_temp_path {directory}/uwsgi;
                 scgi_temp_path {directory}/scgi;
                 server {{ listen 80; root {directory}/site; }} }}"
        );
        std::fs::write(self.path("nginx.conf"), nginx)?;
        let sshd = format!(
            "Port {SSH}\nHostKey {directory}/host\nPidFile none\n\
             AuthorizedKeysFile {directory}/user.pub\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin yes\nUseDNS no\nPrintLastLog no\n"
        );
        std::fs::write(self.path("sshd.conf"), sshd)
    }

    /// Starts the stack, and the programs.
    fn start(&mut self) -> io::Result<()> {
        let tool = std::env::current_exe()?;
        let mut up = self.server.command(&tool.to_string_lossy());
        up.args(["up", "--name", NAME, "--topology", &self.topology]);
        up.args(["--nic", "packet:wire", "--no-probe"]);
        up.args(["--addr", &format!("{SERVER}/24"), "--rules"]);
        up.arg(self.path("rules.conf"));
        if let Some(recovery) = &self.recovery {
            up.args(["--recovery", recovery]);
        }
        let up = Process::spawn(up, "skink up")?;
        up.wait_until("it is ready", || up.log().contains("ready"))?;
        self.up = Some(up);
        self.start_programs(&tool)
    }

    fn start_programs(&mut self, tool: &Path) -> io::Result<()> {
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        let at = |name: &str| self.path(name).display().to_string();
        let tool = tool.to_string_lossy();
        let names = format!("{CLIENT}:{NAMES}");
        for (name, port, program) in [
            (
                "nginx",
                80,
                words(&["nginx", "-e", "stderr", "-c", &at("nginx.conf")]),
            ),
            (
                "sshd",
                SSH,
                words(&["/usr/sbin/sshd", "-D", "-e", "-f", &at("sshd.conf")]),
            ),
            (
                "the campaign's program",
                super::super::peer::BLOCKS,
                words(&[&tool, "fault", "peer", &names]),
            ),
        ] {
            let mut command = self.server.command(&tool);
            command.args(["run", "--name", NAME, "--"]).args(program);
            let process = Process::spawn(command, name)?;
            process.wait_until("it answers", || self.answers(port))?;
            self.programs.push(process);
        }
        Ok(())
    }

    fn answers(&self, port: u16) -> bool {
        let connect = move || {
            let to = std::net::SocketAddr::from(([10, 9, 0, 2], port));
            std::net::TcpStream::connect_timeout(&to, Duration::from_millis(500)).is_ok()
        };
        let thread = self.client.thread(connect);
        thread.is_ok_and(|thread| matches!(thread.join(), Ok(Ok(true))))
    }

    /// Ends all, and starts it anew.
    pub fn restart(&mut self) -> io::Result<()> {
        self.programs.clear();
        if let Some(up) = self.up.take() {
            // In good order: a supervisor that is killed has a standby, which would go on.
            up.stop()?;
        }
        self.start()
    }

    /// What the stack and its programs have said so far.
    pub fn logs(&self) -> String {
        let all = self.up.iter().chain(&self.programs);
        all.map(Process::log).collect::<Vec<_>>().join("\n")
    }

    /// Programs that have ended by themselves.
    pub fn ended(&self) -> Vec<String> {
        let ended = self.programs.iter().filter(|it| it.has_ended());
        ended
            .map(|it| it.log().lines().last().unwrap_or_default().to_owned())
            .collect()
    }

    /// The running stack.
    pub fn stack(&self) -> Result<Found, Failure> {
        let found = tools::find(Some(NAME))?;
        let found = found.into_iter().find(|it| !it.info.components.is_empty());
        found.ok_or_else(|| Failure::tool("the campaign's stack doesn't answer"))
    }

    /// `ssh` on the client, up to what is to be executed.
    pub fn ssh(&self) -> Command {
        let mut ssh = self.client.command("ssh");
        ssh.args(["-q", "-F", "none", "-p", &SSH.to_string(), "-i"]);
        ssh.arg(self.path("user"));
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "ConnectTimeout=20",
        ] {
            ssh.args(["-o", option]);
        }
        ssh.arg(format!("root@{SERVER}"));
        ssh
    }
}

/// What nginx serves.
pub fn page() -> Vec<u8> {
    let mut page = super::super::peer::block(u64::MAX);
    page.truncate(22_000);
    page
}

pub fn failed(error: io::Error) -> Failure {
    Failure::tool(format!("the campaign's machines: {error}"))
}
