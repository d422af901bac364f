//! OpenSSH on a stack of its own process: a server that forks, executes itself anew with the
//! connection, and gives up its privileges.

use super::users::Build;
use super::{APART, APART_ONCE, cases_in};
use crate::network::{Network, bracketed};
use crate::site::{Nginx, PATIENCE, Site};
use crate::{Case, Failure, Outcome};
use rustix::process::Signal;
use skink_testbed::{Process, Scratch};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::process::Command;

pub fn cases() -> Vec<Case> {
    let mut cases = cases_in(&APART, "ssh/login", login);
    cases.extend(cases_in(&APART_ONCE, "ssh/copies-a-gibibyte", copies));
    cases.extend(cases_in(&APART, "ssh/forwards", forwards));
    cases.extend(cases_in(&APART, "ssh/listens-for-clients", listens));
    cases.extend(cases_in(&APART, "ssh/connects-for-clients", connects));
    cases.extend(cases_in(&APART, "ssh/another-user", another_user));
    cases.extend(cases_in(
        &APART_ONCE,
        "ssh/of-another-user",
        of_another_user,
    ));
    cases
}

/// A running sshd and what its clients need.
pub struct Sshd {
    process: Process,
    files: Scratch,
    /// What it is run by, again for each client, if that isn't the common one.
    _build: Option<Build>,
}

impl Sshd {
    const PORT: u16 = 2222;

    /// One that every user can log in at with the same key.
    ///
    /// # Errors
    /// [`Failure::Skip`] without root; else if it can't be started.
    pub fn on_skink(network: &Network) -> Result<Sshd, Failure> {
        if !skink_testbed::is_root() {
            return Err(Failure::Skip("sshd needs root to log users in".to_owned()));
        }
        // Where it leaves its privileges behind.
        std::fs::create_dir_all("/run/sshd")?;
        Sshd::start(network, 0, |words| {
            // It executes itself anew by this path.
            network.skink_run(words[0], &words[1..])
        })
    }

    /// One that isn't root's: it logs in nobody but its own user.
    fn of(network: &Network, user: u32) -> Result<Sshd, Failure> {
        let build = Build::new()?;
        let sshd = Sshd::start(network, user, |words| Ok(build.run(network, user, words)))?;
        Ok(Sshd {
            _build: Some(build),
            ..sshd
        })
    }

    fn start(
        network: &Network,
        user: u32,
        run: impl FnOnce(&[&str]) -> Result<Command, Failure>,
    ) -> Result<Sshd, Failure> {
        let files = Scratch::new("ssh")?;
        let at = |name: &str| files.path().join(name).display().to_string();
        for name in ["host", "user"] {
            let mut keygen = Command::new("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-f", &at(name)]);
            Network::finish(keygen, "ssh-keygen", PATIENCE)?;
        }
        let configuration = format!(
            "Port {}
             HostKey {}
             PidFile none
             AuthorizedKeysFile {}
             StrictModes no
             UsePAM no
             PasswordAuthentication no
             PermitRootLogin yes
             UseDNS no
             AllowTcpForwarding yes
             GatewayPorts clientspecified
             Subsystem sftp internal-sftp\n",
            Self::PORT,
            at("host"),
            at("user.pub"),
        );
        std::fs::write(files.path().join("sshd_config"), configuration)?;
        for file in ["", "host", "user.pub", "sshd_config"] {
            chown(files.path().join(file), Some(user), Some(user))?;
        }
        let words = ["/usr/sbin/sshd", "-D", "-e", "-f", &at("sshd_config")];
        let process = Process::spawn(run(&words)?, "sshd on Skink")?;
        network.wait_for(&process, Network::SKINK[0], Self::PORT)?;
        Ok(Sshd {
            process,
            files,
            _build: None,
        })
    }

    /// `ssh` or `scp` on the kernel's host, up to its own arguments.
    pub fn client(&self, network: &Network, program: &str) -> Command {
        let key = self.files.path().join("user");
        let mut command = network.kernel.command(program);
        let port = if program == "scp" { "-P" } else { "-p" };
        command.args(["-q", "-F", "none", "-i", &key.to_string_lossy()]);
        command.args([port, &Self::PORT.to_string()]);
        for option in [
            "StrictHostKeyChecking=no",
            "UserKnownHostsFile=/dev/null",
            "BatchMode=yes",
            "ConnectTimeout=20",
        ] {
            command.args(["-o", option]);
        }
        command
    }

    fn finish(&self, command: Command, name: &str) -> Result<String, Failure> {
        Network::finish(command, name, PATIENCE).map_err(|failure| match failure {
            Failure::Wrong(what) => {
                let said = self.process.log();
                Failure::Wrong(format!("{what}\nsshd printed:\n{said}"))
            }
            skip => skip,
        })
    }
}

/// Ends a client that forwards. Not by SIGTERM: OpenSSH 9.2 looks whether one has come, then calls `poll`, and
/// one that comes in between is heeded only when something else happens.
fn end(client: Process) -> Outcome {
    client.signal(Signal::KILL);
    client.wait(PATIENCE)?;
    Ok(())
}

fn login(network: &Network) -> Outcome {
    let sshd = Sshd::on_skink(network)?;
    for address in Network::SKINK {
        let mut ssh = sshd.client(network, "ssh");
        ssh.args([
            &format!("root@{address}"),
            "echo $SSH_CONNECTION; seq 100000 | tail -n 1",
        ]);
        let said = sshd.finish(ssh, "ssh")?;
        if !said.contains(address) || !said.contains("100000") {
            return Err(Failure::Wrong(format!("ssh printed:\n{said}")));
        }
    }
    Ok(())
}

/// To the server and back.
fn copies(network: &Network) -> Outcome {
    let sshd = Sshd::on_skink(network)?;
    let site = Site::new()?;
    let original = site.add("gibibyte", 1 << 30)?;
    let (there, back) = (site.path("there"), site.path("back"));
    let remote = format!("root@{}:{}", Network::SKINK[0], there.display());
    let mut scp = sshd.client(network, "scp");
    scp.args([original.as_os_str(), remote.as_ref()]);
    sshd.finish(scp, "scp to Skink")?;
    let mut scp = sshd.client(network, "scp");
    scp.args([remote.as_ref(), back.as_os_str()]);
    sshd.finish(scp, "scp from Skink")?;
    for copy in [there, back] {
        let mut cmp = Command::new("cmp");
        cmp.args([&original, &copy]);
        Network::finish(cmp, "cmp", PATIENCE)?;
    }
    Ok(())
}

/// A web server on Skink is reached through a forwarded port of the client's.
fn forwards(network: &Network) -> Outcome {
    let sshd = Sshd::on_skink(network)?;
    let site = Site::new()?;
    let nginx = Nginx::on_skink(network, &site)?;
    network.kernel.ip("link set lo up")?;
    for address in Network::SKINK {
        let mut ssh = sshd.client(network, "ssh");
        let forward = format!("8080:{}:{}", bracketed(address), Nginx::PORT);
        ssh.args(["-N", "-L", &forward, &format!("root@{address}")]);
        let ssh = Process::spawn(ssh, "ssh -L")?;
        network.wait_from(&network.kernel, &ssh, "127.0.0.1", 8080)?;
        let mut shell = network.kernel.command("bash");
        shell.args(["-c", &site.fetch_and_compare("127.0.0.1", 8080, "larger")]);
        sshd.finish(shell, "fetching through ssh")?;
        end(ssh)?;
    }
    nginx.stop()
}

/// A port at which sshd listens leads to a web server of the client's side (`ssh -R`).
fn listens(network: &Network) -> Outcome {
    let sshd = Sshd::on_skink(network)?;
    let site = Site::new()?;
    let nginx = Nginx::on_kernel(network, &site)?;
    for (here, there) in Network::SKINK.into_iter().zip(Network::KERNEL) {
        let forward = format!(
            "{}:8080:{}:{}",
            bracketed(here),
            bracketed(there),
            Nginx::PORT
        );
        let mut ssh = sshd.client(network, "ssh");
        ssh.args(["-N", "-o", "ExitOnForwardFailure=yes", "-R", &forward]);
        ssh.arg(format!("root@{here}"));
        let ssh = Process::spawn(ssh, "ssh -R")?;
        network.wait_for(&ssh, here, 8080)?;
        for name in ["larger", "tiny"] {
            let mut shell = network.kernel.command("bash");
            shell.args(["-c", &site.fetch_and_compare(here, 8080, name)]);
            sshd.finish(shell, "fetching through ssh -R")?;
        }
        end(ssh)?;
    }
    nginx.stop()
}

/// sshd makes connections for a proxy of the client's (`ssh -D`): to another host, and to a server beside it.
fn connects(network: &Network) -> Outcome {
    let sshd = Sshd::on_skink(network)?;
    let site = Site::new()?;
    let servers = [
        Nginx::on_kernel(network, &site)?,
        Nginx::on_skink(network, &site)?,
    ];
    let mut ssh = sshd.client(network, "ssh");
    ssh.args(["-N", "-D", "1080", &format!("root@{}", Network::SKINK[0])]);
    let ssh = Process::spawn(ssh, "ssh -D")?;
    network.wait_from(&network.kernel, &ssh, "127.0.0.1", 1080)?;
    for address in Network::KERNEL.into_iter().chain(Network::SKINK) {
        let fetch = site.fetch_and_compare(address, Nginx::PORT, "larger");
        let mut shell = network.kernel.command("bash");
        shell.env("ALL_PROXY", "socks5://127.0.0.1:1080");
        shell.args(["-c", &fetch]);
        sshd.finish(shell, &format!("fetching from {address} through ssh -D"))?;
    }
    end(ssh)?;
    servers.into_iter().try_for_each(Nginx::stop)
}

/// Who isn't root logs in, and what he copies is his: what serves him has given up root's rights with the connection open.
fn another_user(network: &Network) -> Outcome {
    copies_as_www_data(network, &Sshd::on_skink(network)?)
}

/// An sshd without privileges, which is that user's.
fn of_another_user(network: &Network) -> Outcome {
    copies_as_www_data(network, &Sshd::of(network, WWW_DATA)?)
}

const WWW_DATA: u32 = 33;

fn copies_as_www_data(network: &Network, sshd: &Sshd) -> Outcome {
    let site = Site::new()?;
    let original = site.path("larger");
    let everybodys = Scratch::new("everybodys")?;
    std::fs::set_permissions(everybodys.path(), PermissionsExt::from_mode(0o777))?;
    let (there, back) = (everybodys.path().join("there"), site.path("back"));
    for address in Network::SKINK {
        let remote = format!("www-data@{}:{}", bracketed(address), there.display());
        for (from, to) in [
            (original.as_os_str(), remote.as_ref()),
            (remote.as_ref(), back.as_os_str()),
        ] {
            let mut scp = sshd.client(network, "scp");
            scp.args([from, to]);
            sshd.finish(scp, "scp as www-data")?;
        }
        for copy in [&there, &back] {
            let mut cmp = Command::new("cmp");
            cmp.args([&original, copy]);
            Network::finish(cmp, "cmp", PATIENCE)?;
        }
        if there.metadata()?.uid() == 0 {
            return Err(Failure::Wrong("what it copied is root's".to_owned()));
        }
    }
    Ok(())
}
