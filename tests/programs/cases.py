"""What each program is for, and how that is seen. A case has the scene, `s`: a server is started on Skink, and clients at the other
end of the cable ask it."""

import os, shutil, subprocess, time
from scene import OURS, PEER

CASES = {}


def case(run):
    CASES[run.__name__] = run
    return run


def files(s):
    d = s.dir + "/www"
    os.makedirs(d, exist_ok=True)
    open(d + "/small", "w").write("x" * 20)
    open(d + "/22k", "w").write("y" * 22000)
    if not os.path.exists(d + "/big"):
        subprocess.run(f"head -c 20000000 /dev/urandom > {d}/big; chmod -R a+rX {s.dir}", shell=True)
    return d


def back(s, d):
    open(s.dir + "/back.conf", "w").write(
        f'server.document-root="{d}"\nserver.bind="{PEER}"\nserver.port=8081\nserver.max-keep-alive-requests=100000\n'
    )
    s.server(["lighttpd", "-D", "-f", s.dir + "/back.conf"], outside=True)
    s.wait(8081, PEER)


def cert(s):
    subprocess.run(
        f"openssl req -x509 -newkey rsa:2048 -nodes -keyout {s.dir}/k.pem -out {s.dir}/c.pem -days 2 -subj /CN=x 2>/dev/null; cat {s.dir}/k.pem {s.dir}/c.pem > {s.dir}/both.pem; chmod a+r {s.dir}/*.pem",
        shell=True,
        check=True,
    )


def ask(s, url, requests, clients, options=""):
    """Asks so often, so many clients at a time, each answer of which must come and be a good one."""
    said = s.client(f"ab -q -n {requests} -c {clients} {options} {url}")
    complete = f"Complete requests:      {requests}\n" in said and "Failed requests:        0\n" in said
    s.check(complete and "Non-2xx" not in said, said[-800:])


def web(s, port, scheme="http", k=""):
    d = s.dir + "/www"
    s.wait(port)
    s.client(f"curl -sS {k} -m 20 {scheme}://{OURS}:{port}/big | cmp - {d}/big")
    ask(s, f"{scheme}://{OURS}:{port}/small", 2000, 20, "-k")
    ask(s, f"{scheme}://{OURS}:{port}/22k", 500, 10)


@case
def haproxy(s):
    d = files(s)
    open(s.dir + "/h.cfg", "w").write(f"""global
 nbthread 2
 maxconn 500
defaults
 mode http
 timeout connect 5s
 timeout client 10s
 timeout server 10s
frontend f
 bind {OURS}:8080
 default_backend b
backend b
 option splice-auto
 server a {PEER}:8081
listen t
 mode tcp
 bind {OURS}:8082
 server a {PEER}:8081
""")
    back(s, d)
    s.server(["haproxy", "-W", "-db", "-f", s.dir + "/h.cfg"])
    web(s, 8080)
    web(s, 8082)


def apache(s, mpm):
    d = files(s)
    open(s.dir + "/a.conf", "w").write(f"""
ServerRoot {s.dir}
ServerName x
LoadModule mpm_{mpm}_module /usr/lib/apache2/modules/mod_mpm_{mpm}.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
PidFile {s.dir}/pid
ErrorLog {s.dir}/err.log
Listen {OURS}:8080
DocumentRoot {d}
StartServers {30 if mpm=="prefork" else 3}
User www-data
Group www-data
""")
    s.server(["apache2", "-DFOREGROUND", "-f", s.dir + "/a.conf"])
    web(s, 8080)
    s.client(f"kill -USR1 $(cat {s.dir}/pid); sleep 1")
    web(s, 8080)


@case
def apache_event(s):
    apache(s, "event")


@case
def apache_worker(s):
    apache(s, "worker")


@case
def apache_prefork(s):
    apache(s, "prefork")


@case
def lighttpd(s):
    d = files(s)
    open(s.dir + "/l.conf", "w").write(f'server.document-root="{d}"\nserver.bind="{OURS}"\nserver.port=8080\nserver.max-worker=2\n')
    s.server(["lighttpd", "-D", "-f", s.dir + "/l.conf"])
    web(s, 8080)


def database(s):
    """An empty one of PostgreSQL's, and where its programs are."""
    b = "/usr/lib/postgresql/15/bin"
    pg = s.dir + "/pg"
    os.makedirs(pg)
    shutil.chown(pg, "postgres")
    subprocess.run(["runuser", "-u", "postgres", "--", b + "/initdb", "-D", pg, "-A", "trust", "-N"], check=True, capture_output=True)
    open(pg + "/pg_hba.conf", "a").write("host all all 10.77.0.0/24 trust\n")
    return b, pg


@case
def postgres(s):
    b, pg = database(s)
    s.server(
        [b + "/postgres", "-D", pg, "-c", f"listen_addresses={OURS}", "-c", "unix_socket_directories=" + pg, "-c", "fsync=off"],
        user="postgres",
    )
    s.wait(5432)
    P = f"-h {OURS} -U postgres"
    time.sleep(1)
    s.client(f"{b}/pgbench {P} -i -s 2 postgres")
    o = s.client(f"{b}/pgbench {P} -c 8 -j 2 -T 3 postgres")
    s.check("number of failed transactions: 0" in o, o)
    o = s.client(f"{b}/pgbench {P} -c 4 -T 2 -C -S postgres")
    s.check("number of failed transactions: 0" in o, o)
    o = s.client(f"{b}/psql {P} postgres -c 'copy pgbench_accounts to stdout' | wc -l")
    s.check("200000" in o, o)
    s.client(
        f"{b}/psql {P} postgres -c 'create table t(x text)'; {b}/psql {P} postgres -c 'copy pgbench_accounts to stdout' > {s.dir}/d; {b}/psql {P} postgres -c 'create table u as table pgbench_accounts with no data' && {b}/psql {P} postgres -c '\\copy u from {s.dir}/d'"
    )
    o = s.client(f"{b}/psql {P} postgres -tc 'select count(*) from u'")
    s.check("200000" in o, o)
    o = s.client(f"timeout -s INT 1 {b}/psql {P} postgres -c 'select pg_sleep(20)'", ok=False)
    s.check("cancel" in o.lower(), o)
    o = s.client(f"({b}/psql {P} postgres -c 'listen a' -c 'select pg_sleep(0.5)' -c 'select 1'); {b}/psql {P} postgres -c 'notify a'")


@case
def mariadb(s):
    m = s.dir + "/my"
    os.makedirs(m)
    shutil.chown(m, "mysql")
    subprocess.run(
        f"mariadb-install-db --user=mysql --datadir={m} --auth-root-authentication-method=normal --skip-test-db",
        shell=True,
        check=True,
        capture_output=True,
    )
    open(s.dir + "/init.sql", "w").write("create user 'u'@'%';\ngrant all on *.* to 'u'@'%';\ncreate database d;\n")
    s.server(
        [
            "mariadbd",
            "--no-defaults",
            "--datadir=" + m,
            "--bind-address=" + OURS,
            "--port=3306",
            "--socket=" + m + "/s",
            "--skip-name-resolve",
            "--skip-grant-tables",
        ],
        user="mysql",
    )
    s.wait(3306)
    time.sleep(1)
    o = s.client(f"mariadb-slap -h {OURS} -u root --concurrency=10 --iterations=2 --auto-generate-sql --number-of-queries=500")
    s.check("Average" in o, o)
    o = s.client(
        f"mariadb -h {OURS} -u root -e \"create database d; use d; create table t(x longblob); insert into t values(repeat('a',10000000)); select length(x), md5(x) from t; select md5(x) from t\""
    )
    s.check("10000000" in o, o)
    o = s.client(f"mariadb -h {OURS} -u root d -Ne 'select x from t' | wc -c")
    s.check("10000001" in o, o)


@case
def node_http(s):
    d = files(s)
    open(s.dir + "/n.js", "w").write("""const http=require('http'),fs=require('fs');
http.createServer((q,r)=>{fs.createReadStream(process.argv[2]+q.url).on('error',()=>{r.statusCode=404;r.end()}).pipe(r)}).listen(8080,process.argv[3]);
const net=require('net');net.createServer(c=>c.pipe(c)).listen(8090,process.argv[3]);""")
    s.server(["node", s.dir + "/n.js", d, OURS])
    web(s, 8080)
    o = s.client(f"head -c 5000000 {d}/big | timeout 20 ncat {OURS} 8090 | head -c 5000000 | cmp - <(head -c 5000000 {d}/big)")


@case
def node_cluster(s):
    d = files(s)
    for policy in "rr", "none":
        open(s.dir + "/n.js", "w").write(
            """const http=require('http'),fs=require('fs'),cluster=require('cluster');
if(cluster.isPrimary){cluster.fork();cluster.fork();cluster.on('exit',()=>cluster.fork())}else
http.createServer((q,r)=>{fs.createReadStream(process.argv[2]+q.url).on('error',()=>{r.statusCode=404;r.end()}).pipe(r)}).listen(+process.argv[4],process.argv[3]);"""
        )
        port = 8080 if policy == "rr" else 8081
        s.server(["node", s.dir + "/n.js", d, OURS, str(port)], env={"NODE_CLUSTER_SCHED_POLICY": policy})
        web(s, port)
        if s.topology == "library":
            break


@case
def node_client(s):
    d = files(s)
    back(s, d)
    open(s.dir + "/c.js", "w").write(
        """(async()=>{const a=await Promise.all([...Array(50)].map(async(_,i)=>{const r=await new Promise((y,n)=>require('http').get('http://'+process.argv[2]+':8081/22k',y).on('error',n));let k=0;for await(const c of r)k+=c.length;return k}));console.log(a.every(x=>x===22000)?'good':'bad '+a)})()"""
    )
    o = s.client(["node", s.dir + "/c.js", PEER], inside=True)
    s.check("good" in o, o)


@case
def mosquitto(s):
    open(s.dir + "/m.conf", "w").write(f"listener 1883 {OURS}\nallow_anonymous true\n")
    s.server(["mosquitto", "-c", s.dir + "/m.conf"])
    s.wait(1883)
    o = s.client(
        f"timeout 10 mosquitto_sub -h {OURS} -t a/b -C 100 -q 1 > {s.dir}/got & sleep 1; seq 100 | mosquitto_pub -h {OURS} -t a/b -l -q 1; wait; wc -l < {s.dir}/got"
    )
    s.check("100" in o, o)


@case
def dnsmasq(s):
    (
        s.server(
            [
                "dnsmasq",
                "-k",
                "-C",
                "/dev/null",
                "--no-resolv",
                "--no-hosts",
                f"--listen-address={OURS}",
                "--bind-interfaces",
                "--address=/foo.test/1.2.3.4",
                "-u",
                "nobody",
                "--port=53",
            ]
        )
        if s.topology != "kernel"
        else s.server(["dnsmasq", "-k", "-C", "/dev/null", "--no-resolv", "--no-hosts", "--address=/foo.test/1.2.3.4", "-u", "nobody"])
    )
    time.sleep(1)
    o = s.client(f"dig +time=2 +tries=2 @{OURS} foo.test +short; dig +tcp +time=2 @{OURS} foo.test +short")
    s.check(o.count("1.2.3.4") == 2, o)


@case
def unbound(s):
    open(s.dir + "/u.conf", "w").write(
        f'server:\n interface: {OURS}\n access-control: 10.0.0.0/8 allow\n chroot: ""\n username: ""\n use-syslog: no\n pidfile: {s.dir}/up\n num-threads: 2\n local-zone: "test." static\n local-data: "foo.test. A 1.2.3.4"\nremote-control:\n control-enable: no\n'
    )
    s.server(["unbound", "-d", "-c", s.dir + "/u.conf"])
    time.sleep(2)
    for _ in range(5):
        o = s.client(f"dig +time=2 +tries=2 @{OURS} foo.test +short; dig +tcp +time=2 @{OURS} foo.test +short")
        s.check(o.count("1.2.3.4") == 2, o)


@case
def openssl(s):
    d = files(s)
    cert(s)
    s.server(["openssl", "s_server", "-accept", f"{OURS}:8443", "-key", s.dir + "/k.pem", "-cert", s.dir + "/c.pem", "-WWW"], cwd=d)
    s.wait(8443)
    s.client(f"curl -ksS -m 20 https://{OURS}:8443/big | cmp - {d}/big")
    o = s.client(f"openssl s_time -connect {OURS}:8443 -time 2 -new")
    s.check("connections" in o, o)


@case
def nghttpd(s):
    d = files(s)
    cert(s)
    s.server(["nghttpd", "-a", OURS, "-n", "2", "-d", d, "8443", s.dir + "/k.pem", s.dir + "/c.pem"])
    s.wait(8443)
    s.client(f"curl --http2 -ksS -m 20 https://{OURS}:8443/big | cmp - {d}/big")
    o = s.client(f"h2load -n 2000 -c 10 -m 10 https://{OURS}:8443/22k")
    s.check("2000 succeeded" in o, o)


@case
def stunnel(s):
    d = files(s)
    cert(s)
    back(s, d)
    open(s.dir + "/s.conf", "w").write(
        f"foreground=yes\npid=\ncert={s.dir}/c.pem\nkey={s.dir}/k.pem\n[a]\naccept={OURS}:8443\nconnect={PEER}:8081\n"
    )
    s.server(["stunnel", s.dir + "/s.conf"])
    web(s, 8443, "https", "-k")


@case
def socat_exec(s):
    s.server(["socat", f"TCP-LISTEN:7001,bind={OURS},fork,reuseaddr", "EXEC:cat"])
    s.wait(7001)
    o = s.client(f"echo hello | socat -t2 - TCP:{OURS}:7001")
    s.check("hello" in o, o)
    s.server(["socat", f"TCP-LISTEN:7002,bind={OURS},fork,reuseaddr", "EXEC:cat,nofork"])
    s.wait(7002)
    o = s.client(f"echo hello | socat -t2 - TCP:{OURS}:7002")
    s.check("hello" in o, o)


@case
def socat_udp(s):
    s.server(["socat", f"UDP-LISTEN:7001,bind={OURS},fork,reuseaddr", "PIPE"])
    time.sleep(0.5)
    for i in range(3):
        o = s.client(f"echo hello{i} | socat -t1 - UDP:{OURS}:7001")
        s.check(f"hello{i}" in o, o)


@case
def rsyncd(s):
    d = s.dir + "/tree"
    os.makedirs(d + "/in")
    os.makedirs(d + "/out")
    subprocess.run(f"for i in $(seq 200); do head -c $((i*2000)) /dev/urandom > {d}/out/f$i; done; chmod -R a+rwX {s.dir}", shell=True)
    open(s.dir + "/r.conf", "w").write(f"port=8730\naddress={OURS}\nuse chroot=no\n[d]\npath={d}\nread only=no\nuid=root\ngid=root\n")
    s.server(["rsync", "--daemon", "--no-detach", "--config=" + s.dir + "/r.conf"])
    s.wait(8730)
    s.client(
        f"rsync -a rsync://{OURS}:8730/d/out/ {s.dir}/copy/ && diff -r {d}/out {s.dir}/copy && rsync -a {s.dir}/copy/ rsync://{OURS}:8730/d/in/ && diff -r {d}/out {d}/in && rsync -ac rsync://{OURS}:8730/d/out/ {s.dir}/copy/"
    )


@case
def squid(s):
    d = files(s)
    back(s, d)
    open(s.dir + "/q.conf", "w").write(
        f"http_port {OURS}:3128\nhttp_access allow all\npid_filename {s.dir}/qp\ncache_log {s.dir}/cache.log\naccess_log none\nvisible_hostname x\ncache_mem 8 MB\nshutdown_lifetime 1 seconds\ncoredump_dir {s.dir}\npinger_enable off\nlogfile_rotate 0\ndns_nameservers 10.77.0.1\n"
    )
    os.chmod(s.dir, 0o777)
    s.server(["squid", "-N", "-f", s.dir + "/q.conf"])
    s.wait(3128)
    s.client(f"curl -sS -m 20 -x http://{OURS}:3128 http://{PEER}:8081/big | cmp - {d}/big")
    ask(s, f"http://{PEER}:8081/22k", 1000, 10, f"-X {OURS}:3128")


@case
def gunicorn(s):
    open(s.dir + "/app.py", "w").write("def app(e,r):\n r('200 OK',[('Content-Length','22000')]);return [b'y'*22000]\n")
    for i, k in enumerate(["sync", "gthread", "gevent"]):
        port = 8080 + i
        (
            s.server(["gunicorn", "-w", "2", "-k", k, "--threads", "4", "-b", f"{OURS}:{port}", "app:app"], cwd=s.dir)
            if k != "sync"
            else s.server(["gunicorn", "-w", "2", "-b", f"{OURS}:{port}", "app:app"], cwd=s.dir)
        )
        s.wait(port)
        ask(s, f"http://{OURS}:{port}/", 1000, 10)
        if s.topology == "library":
            break


@case
def uvloop(s):
    open(s.dir + "/u.py", "w").write("""import asyncio,uvloop,sys
from aiohttp import web
async def h(q): return web.Response(body=b'y'*22000)
a=web.Application(); a.router.add_get('/',h)
uvloop.install(); web.run_app(a,host=sys.argv[1],port=8080)""")
    s.server(["/usr/bin/python3", s.dir + "/u.py", OURS])
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/", 1000, 10, "-k")


@case
def pyservers(s):
    d = files(s)
    s.server(["/usr/bin/python3", "-m", "http.server", "--bind", OURS, "8080"], cwd=d)
    s.wait(8080)
    s.client(f"curl -sS -m 20 http://{OURS}:8080/big | cmp - {d}/big")
    ask(s, f"http://{OURS}:8080/22k", 500, 5)


@case
def php_cli(s):
    d = files(s)
    s.server(["php", "-S", f"{OURS}:8080", "-t", d])
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/22k", 500, 5)


@case
def ruby(s):
    open(s.dir + "/r.rb", "w").write("""require 'socket'
s=TCPServer.new(ARGV[0],8080)
loop{c=s.accept;Thread.new{while l=c.gets;c.write(l);end;c.close}}""")
    s.server(["ruby", s.dir + "/r.rb", OURS])
    s.wait(8080)
    o = s.client(f"seq 20000 > {s.dir}/q; for i in 1 2 3; do ncat {OURS} 8080 < {s.dir}/q | head -20000 | cmp - {s.dir}/q; done")


@case
def perl_fork(s):
    open(s.dir + "/p.pl", "w").write("""use IO::Socket::INET;$SIG{CHLD}='IGNORE';
my $s=IO::Socket::INET->new(LocalAddr=>$ARGV[0],LocalPort=>8080,Listen=>10,ReuseAddr=>1) or die;
while(my $c=$s->accept){ if(!fork){ close $s; while(<$c>){print $c $_} exit } close $c }""")
    s.server(["perl", s.dir + "/p.pl", OURS])
    s.wait(8080)
    o = s.client(f"seq 20000 > {s.dir}/q; for i in 1 2 3; do ncat {OURS} 8080 < {s.dir}/q | head -20000 | cmp - {s.dir}/q; done")


@case
def perl_prefork(s):
    open(s.dir + "/p.pl", "w").write("""use IO::Socket::INET;
my $s=IO::Socket::INET->new(LocalAddr=>$ARGV[0],LocalPort=>8080,Listen=>10,ReuseAddr=>1) or die;
for(1..3){ fork or last }
while(my $c=$s->accept){ while(<$c>){print $c $_} close $c }""")
    s.server(["perl", s.dir + "/p.pl", OURS])
    s.wait(8080)
    o = s.client(f"seq 20000 > {s.dir}/q; for i in 1 2 3 4 5 6 7 8; do ncat {OURS} 8080 < {s.dir}/q | head -20000 | cmp - {s.dir}/q; done")


@case
def ncat_exec(s):
    s.server(["ncat", "-l", "-k", OURS, "7000", "--sh-exec", "cat"])
    s.wait(7000)
    o = s.client(f"(echo hello; sleep 0.5) | ncat {OURS} 7000")
    s.check("hello" in o, o)


@case
def bash_tcp(s):
    d = files(s)
    back(s, d)
    o = s.client(["bash", "-c", f"exec 3<>/dev/tcp/{PEER}/8081; printf 'GET /small HTTP/1.0\\r\\n\\r\\n' >&3; cat <&3"], inside=True)
    s.check("x" * 20 in o, o)


@case
def clients(s):
    d = files(s)
    back(s, d)
    s.client(["wget", "-q", "-O", s.dir + "/w", f"http://{PEER}:8081/big"], inside=True)
    s.client(f"cmp {s.dir}/w {d}/big")
    s.client(
        ["curl", "-sS", "-Z", "-o", s.dir + "/c1", f"http://{PEER}:8081/big", "-o", s.dir + "/c2", f"http://{PEER}:8081/big"], inside=True
    )
    s.client(f"cmp {s.dir}/c1 {d}/big; cmp {s.dir}/c2 {d}/big")
    s.client(["aria2c", "-q", "-x4", "-s4", "-k1M", "-d", s.dir, "-o", "ar", f"http://{PEER}:8081/big"], inside=True)
    s.client(f"cmp {s.dir}/ar {d}/big")
    o = s.client(["ab", "-q", "-n", "1000", "-c", "10", "-k", f"http://{PEER}:8081/22k"], inside=True)
    s.check("Failed requests:        0" in o, o)
    o = s.client(["wrk", "-t2", "-c20", "-d2", f"http://{PEER}:8081/22k"], inside=True)
    s.check("Requests/sec" in o and "Socket errors" not in o, o)


@case
def git_daemon(s):
    d = s.dir + "/g"
    subprocess.run(
        f"git init -q --bare {d}/r.git; git clone -q {d}/r.git {s.dir}/w 2>/dev/null; cd {s.dir}/w; head -c 3000000 /dev/urandom>f; git add f; git -c user.name=a -c user.email=b commit -qm x; git push -q origin HEAD",
        shell=True,
    )
    s.server(
        ["git", "daemon", "--export-all", "--base-path=" + d, "--listen=" + OURS, "--port=9418", "--reuseaddr"],
        env={"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "safe.directory", "GIT_CONFIG_VALUE_0": "*"},
    )
    s.wait(9418)
    s.client(f"git clone -q git://{OURS}/r.git {s.dir}/cl && cmp {s.dir}/cl/f {s.dir}/w/f")


@case
def beanstalkd(s):
    s.server(["beanstalkd", "-l", OURS, "-p", "11300"])
    s.wait(11300)
    o = s.client(f"printf 'put 0 0 10 5\\r\\nhello\\r\\nreserve\\r\\nquit\\r\\n' | ncat {OURS} 11300")
    s.check("hello" in o, o)


@case
def uwsgi(s):
    d = files(s)
    s.server(
        [
            "uwsgi_core" if shutil.which("uwsgi_core") else "uwsgi-core",
            "--http-socket",
            f"{OURS}:8080",
            "--processes",
            "2",
            "--static-map",
            f"/={d}",
        ]
    )
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/22k", 500, 5)


@case
def iperf2(s):
    s.server(["iperf", "-s", "-B", OURS])
    s.wait(5001)
    o = s.client(f"iperf -c {OURS} -t 2 -P 4")
    s.check("SUM" in o, o)
    o = s.client(f"iperf -c {OURS} -t 2 -d")
    s.check("bits/sec" in o, o)


@case
def nuttcp(s):
    s.server(["nuttcp", "-S", "--nofork"])
    s.wait(5000)
    o = s.client(f"nuttcp -T2 {OURS}")
    s.check("bps" in o, o)
    o = s.client(f"nuttcp -r -T2 {OURS}")
    s.check("bps" in o, o)
    o = s.client(f"nuttcp -u -T2 -Ri50m {OURS}")
    s.check("bps" in o, o)


@case
def sockperf(s):
    s.server(["sockperf", "server", "-i", OURS, "-p", "11111"])
    time.sleep(0.5)
    o = s.client(f"sockperf ping-pong -i {OURS} -p 11111 -t 2")
    s.check("avg-latency" in o or "Summary" in o, o)
    s.server(["sockperf", "server", "--tcp", "-i", OURS, "-p", "11112"]) if s.topology != "library" else None
    if s.topology != "library":
        s.wait(11112)
        o = s.client(f"sockperf ping-pong --tcp -i {OURS} -p 11112 -t 2")
        s.check("avg-latency" in o or "Summary" in o, o)


@case
def varnish(s):
    d = files(s)
    back(s, d)
    s.server(["varnishd", "-F", "-a", f"{OURS}:8080", "-b", f"{PEER}:8081", "-n", s.dir + "/varnish", "-T", "none", "-j", "none"])
    web(s, 8080)


@case
def php_fpm(s):
    d = files(s)
    open(d + "/i.php", "w").write("<?php echo str_repeat('z',22000);")
    open(s.dir + "/f.conf", "w").write(
        f"[global]\nerror_log={s.dir}/fpm.log\n[w]\nuser=www-data\ngroup=www-data\nlisten={OURS}:9000\npm=static\npm.max_children=3\n"
    )
    fpm = [p for p in os.listdir("/usr/sbin") if p.startswith("php-fpm")][0]
    s.server([fpm, "-F", "-y", s.dir + "/f.conf"])
    s.wait(9000)
    open(s.dir + "/n.conf", "w").write(
        f"daemon off;error_log {s.dir}/ne.log;pid {s.dir}/np;events{{}}\nhttp{{access_log off;server{{listen {PEER}:8080;location /{{fastcgi_pass {OURS}:9000;fastcgi_param SCRIPT_FILENAME {d}/i.php;fastcgi_param REQUEST_METHOD GET;}}}}}}"
    )
    s.server(["nginx", "-c", s.dir + "/n.conf"], outside=True)
    s.wait(8080, PEER)
    ask(s, f"http://{PEER}:8080/", 500, 3)


@case
def exim(s):
    open(s.dir + "/e.conf", "w").write(f"""daemon_smtp_ports=2525
local_interfaces={OURS}
primary_hostname=x
spool_directory={s.dir}/spool
log_file_path={s.dir}/%slog
host_lookup=
rfc1413_hosts=
acl_smtp_rcpt=ok
begin acl
ok:
 accept
begin routers
r:
 driver=accept
 transport=t
begin transports
t:
 driver=appendfile
 file={s.dir}/mail
 user=root
""")
    os.makedirs(s.dir + "/spool", exist_ok=True)
    subprocess.run(f"chown -R Debian-exim {s.dir}/spool; chmod 777 {s.dir}", shell=True)
    s.server(["exim4", "-bdf", "-q1h", "-C", s.dir + "/e.conf"])
    s.wait(2525)
    o = s.client(f"curl -sS -m 15 smtp://{OURS}:2525 --mail-from a@x --mail-rcpt b@x -T <(seq 1000) -v", ok=False)
    s.check("250 OK id=" in o, o[-900:])


@case
def java(s):
    d = files(s)
    open(s.dir + "/W.java", "w").write(
        """import com.sun.net.httpserver.*;import java.io.*;import java.net.*;import java.nio.file.*;import java.util.concurrent.*;
public class W{public static void main(String[] a)throws Exception{HttpServer h=HttpServer.create(new InetSocketAddress(a[0],8080),100);h.setExecutor(Executors.newFixedThreadPool(4));
h.createContext("/",x->{byte[] b=Files.readAllBytes(Path.of(a[1]+x.getRequestURI().getPath()));x.sendResponseHeaders(200,b.length);x.getResponseBody().write(b);x.close();});h.start();
ServerSocket s=new ServerSocket(8090,50,InetAddress.getByName(a[0]));for(;;){Socket c=s.accept();new Thread(()->{try(c){c.getInputStream().transferTo(c.getOutputStream());}catch(IOException e){e.printStackTrace();}}).start();}}}"""
    )
    subprocess.run(["javac", "-d", s.dir, s.dir + "/W.java"], check=True)
    s.server(["java", "-cp", s.dir, "W", OURS, d])
    web(s, 8080)
    s.client(f"head -c 5000000 {d}/big | timeout 20 ncat {OURS} 8090 | cmp - <(head -c 5000000 {d}/big)")


@case
def java_client(s):
    d = files(s)
    back(s, d)
    open(s.dir + "/Q.java", "w").write(
        """import java.net.*;import java.net.http.*;import java.util.*;import java.util.stream.*;
public class Q{public static void main(String[] a)throws Exception{var c=HttpClient.newHttpClient();var l=IntStream.range(0,50).mapToObj(i->c.sendAsync(HttpRequest.newBuilder(URI.create("http://"+a[0]+":8081/22k")).build(),HttpResponse.BodyHandlers.ofString())).toList();for(var f:l)if(f.get().body().length()!=22000)throw new Error();
try(var u=new java.io.BufferedInputStream(new URL("http://"+a[0]+":8081/big").openStream())){System.out.println("good "+u.readAllBytes().length);}
Socket s=new Socket();s.connect(new InetSocketAddress(a[0],8081),1000);s.setSoTimeout(200);try{s.getInputStream().read();}catch(SocketTimeoutException e){System.out.println("timed out");}
Thread t=new Thread(()->{try{Thread.sleep(300);s.close();}catch(Exception e){}});t.start();try{s.setSoTimeout(0);s.getInputStream().read();}catch(SocketException e){System.out.println("closed: "+e.getMessage());}System.exit(0);}}"""
    )
    subprocess.run(["javac", "-d", s.dir, s.dir + "/Q.java"], check=True)
    o = s.client(["java", "-cp", s.dir, "Q", PEER], inside=True, timeout=60)
    s.check("good 20000000" in o and "timed out" in o and "closed: " in o, o)


@case
def h2o(s):
    d = files(s)
    cert(s)
    open(s.dir + "/h.conf", "w").write(
        f"user: root\nnum-threads: 2\npid-file: {s.dir}/p\nlisten:\n  host: {OURS}\n  port: 8080\nlisten: &ssl\n  host: {OURS}\n  port: 8443\n  ssl:\n    certificate-file: {s.dir}/c.pem\n    key-file: {s.dir}/k.pem\nhosts:\n  default:\n    paths:\n      /:\n        file.dir: {d}\n"
    )
    s.server(["h2o", "-c", s.dir + "/h.conf"])
    web(s, 8080)
    web(s, 8443, "https", "-k")
    o = s.client(f"h2load -n 2000 -c 10 -m 10 https://{OURS}:8443/22k")
    s.check("2000 succeeded" in o, o)


@case
def nginx_tls(s):
    d = files(s)
    cert(s)
    open(s.dir + "/n.conf", "w").write(
        f"worker_processes 2;daemon off;error_log {s.dir}/err.log;pid {s.dir}/np;events{{}}\nhttp{{access_log off;sendfile on;keepalive_requests 100000;server{{listen {OURS}:8443 ssl http2;listen {OURS}:8080;ssl_certificate {s.dir}/c.pem;ssl_certificate_key {s.dir}/k.pem;root {d};}}}}\nstream{{server{{listen {OURS}:9000;proxy_pass {PEER}:8081;}} server{{listen {OURS}:5353 udp;proxy_pass {PEER}:5354;}}}}"
    )
    c = open(s.dir + "/n.conf").read()
    if not os.path.exists("/usr/lib/nginx/modules/ngx_stream_module.so"):
        c = c[: c.index("stream{")]
    else:
        c = "load_module /usr/lib/nginx/modules/ngx_stream_module.so;\n" + c
    open(s.dir + "/n.conf", "w").write(c)
    back(s, d)
    s.server(["nginx", "-c", s.dir + "/n.conf"])
    web(s, 8080)
    web(s, 8443, "https", "-k")
    if "stream" in c:
        web(s, 9000)


@case
def puma(s):
    open(s.dir + "/config.ru", "w").write("run ->(e){[200,{'Content-Type'=>'text/plain'},['y'*22000]]}")
    s.server(["puma", "-w", "2", "-t", "2:4", "-b", f"tcp://{OURS}:8080", s.dir + "/config.ru"], cwd=s.dir)
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/", 1000, 10)


@case
def webrick(s):
    d = files(s)
    s.server(["ruby", "-run", "-e", "httpd", d, "--bind-address=" + OURS, "--port=8080"])
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/22k", 500, 5)


@case
def twisted(s):
    d = files(s)
    s.server(
        [
            "/usr/bin/python3",
            "-c",
            f"""
from twisted.internet import reactor, epollreactor
from twisted.web import server, static
reactor.listenTCP(8080, server.Site(static.File('{d}')), interface='{OURS}')
reactor.run()""",
        ]
    )
    web(s, 8080)


@case
def tornado(s):
    s.server(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import tornado.web,tornado.httpserver,tornado.netutil,tornado.process,asyncio
class H(tornado.web.RequestHandler):
    def get(self): self.write('y'*22000)
socks=tornado.netutil.bind_sockets(8080,'{OURS}')
tornado.process.fork_processes(2)
async def main():
    tornado.httpserver.HTTPServer(tornado.web.Application([('/',H)])).add_sockets(socks)
    await asyncio.Event().wait()
asyncio.run(main())""",
        ]
    )
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/", 1000, 10, "-k")


@case
def trio(s):
    s.server(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import trio
async def h(st):
    async for d in st: await st.send_all(d)
async def main(): await trio.serve_tcp(h,7000,host='{OURS}')
trio.run(main)""",
        ]
    )
    s.wait(7000)
    d = files(s)
    s.client(f"head -c 5000000 {d}/big | timeout 20 ncat {OURS} 7000 | cmp - <(head -c 5000000 {d}/big)")


@case
def asyncio_many(s):
    s.server(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import asyncio
async def h(r,w):
    while d:=await r.read(65536):
        w.write(d); await w.drain()
    w.close()
async def main():
    s=await asyncio.start_server(h,'{OURS}',7000,backlog=1000)
    await s.serve_forever()
asyncio.run(main())""",
        ]
    )
    s.wait(7000)
    o = s.client(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import asyncio,os
data=os.urandom(300000)
async def one():
    r,w=await asyncio.open_connection('{OURS}',7000)
    async def send():
        w.write(data); await w.drain(); w.write_eof()
    t=asyncio.create_task(send()); got=b''
    while p:=await r.read(65536): got+=p
    await t; w.close(); assert got==data
async def main(): await asyncio.gather(*[one() for _ in range(100)])
asyncio.run(main()); print('good')""",
        ]
    )
    s.check("good" in o, o)


@case
def erlang(s):
    open(s.dir + "/e.erl", "w").write("""-module(e).
-export([main/1]).
main([A])->{ok,I}=inet:parse_address(A),{ok,L}=gen_tcp:listen(7000,[binary,{ip,I},{active,true},{reuseaddr,true},{backlog,100}]),acc(L).
acc(L)->{ok,S}=gen_tcp:accept(L),P=spawn(fun()->receive go->ok end,loop(S) end),gen_tcp:controlling_process(S,P),P!go,acc(L).
loop(S)->receive {tcp,S,D}->gen_tcp:send(S,D),loop(S);{tcp_closed,S}->ok end.
""")
    subprocess.run(["erlc", "-o", s.dir, s.dir + "/e.erl"], check=True)
    s.server(["erl", "-noshell", "-pa", s.dir, "-eval", f'e:main(["{OURS}"]).'])
    s.wait(7000)
    d = files(s)
    s.client(f"head -c 2000000 {d}/big | timeout 20 ncat -i 5 {OURS} 7000 | head -c 2000000 | cmp - <(head -c 2000000 {d}/big)")


@case
def samba(s):
    d = s.dir + "/share"
    os.makedirs(d)
    os.chmod(d, 0o777)
    subprocess.run(f"head -c 8000000 /dev/urandom > {d}/big; chmod a+r {d}/big", shell=True)
    open(s.dir + "/smb.conf", "w").write(
        f"[global]\nbind interfaces only=no\ninterfaces={OURS}/24\nsmb ports=4450\nmap to guest=Bad User\nserver role=standalone\nlock directory={s.dir}/l\nstate directory={s.dir}/st\ncache directory={s.dir}/ca\npid directory={s.dir}/pi\nprivate dir={s.dir}/pr\nncalrpc dir={s.dir}/nc\nlog file={s.dir}/smb.log\ndisable spoolss=yes\nload printers=no\n[s]\npath={d}\nguest ok=yes\nread only=no\nforce user=root\n"
    )
    for x in "l st ca pi pr nc".split():
        os.makedirs(f"{s.dir}/{x}", exist_ok=True)
    s.server(["smbd", "-F", "--no-process-group", "-s", s.dir + "/smb.conf"])
    s.wait(4450)
    s.client(f"cd {s.dir}; smbclient -N -p 4450 //{OURS}/s -c 'get big got; put got up' && cmp got {d}/big && cmp {d}/up {d}/big")


@case
def tftp(s):
    d = s.dir + "/t"
    os.makedirs(d)
    subprocess.run(f"head -c 300000 /dev/urandom > {d}/f; chmod -R a+rX {s.dir}", shell=True)
    s.server(["in.tftpd", "-L", "-a", f"{OURS}:6969", "-u", "root", "-s", d])
    time.sleep(0.7)
    s.client(f"cd {s.dir}; tftp -m binary {OURS} 6969 -c get f && cmp f t/f")


@case
def inetd(s):
    program = s.dir + "/answer.py"
    open(program, "w").write("import socket\ns = socket.socket(fileno=0)\nfor _ in range(5):\n    d, a = s.recvfrom(99)\n    s.sendto(d, a)\n")
    open(s.dir + "/i.conf", "w").write(
        f"{OURS}:7070 stream tcp nowait root /bin/cat cat\n{OURS}:7072 dgram udp wait root /usr/bin/python3 python3 {program}\n"
    )
    s.server(["inetd", "-i", s.dir + "/i.conf"])
    s.wait(7070)
    for i in range(3):
        o = s.client(f"(echo hello{i}; sleep 0.3) | ncat {OURS} 7070")
        s.check(f"hello{i}" in o, o)
    ask = f"import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout(8)\nfor i in range(15):\n    s.sendto(b'x%d' % i, ('{OURS}', 7072))\n    assert s.recv(9) == b'x%d' % i\n"
    s.client(["python3", "-c", ask])


@case
def tinyproxy(s):
    d = files(s)
    back(s, d)
    open(s.dir + "/t.conf", "w").write(f'Port 8888\nListen {OURS}\nTimeout 20\nMaxClients 50\nLogLevel Error\nLogFile "{s.dir}/tp.log"\n')
    os.chmod(s.dir, 0o777)
    s.server(["tinyproxy", "-d", "-c", s.dir + "/t.conf"])
    s.wait(8888)
    s.client(f"curl -sS -m 20 -x http://{OURS}:8888 http://{PEER}:8081/big | cmp - {d}/big")


@case
def hitch(s):
    d = files(s)
    back(s, d)
    cert(s)
    open(s.dir + "/hi.conf", "w").write(
        f'frontend = "[{OURS}]:8443"\nbackend = "[{PEER}]:8081"\npem-file = "{s.dir}/both.pem"\nuser="nobody"\nworkers=2\n'
    )
    s.server(["hitch", "--config=" + s.dir + "/hi.conf"])
    web(s, 8443, "https", "-k")


@case
def slapd(s):
    os.makedirs(s.dir + "/db")
    open(s.dir + "/sl.conf", "w").write(
        f'include /etc/ldap/schema/core.schema\npidfile {s.dir}/sp\nmodulepath /usr/lib/ldap\nmoduleload back_mdb\ndatabase mdb\nsuffix "dc=x"\nrootdn "cn=a,dc=x"\nrootpw s\ndirectory {s.dir}/db\n'
    )
    s.server(["slapd", "-d", "0", "-h", f"ldap://{OURS}:3890", "-f", s.dir + "/sl.conf"])
    s.wait(3890)
    o = s.client(
        f"printf 'dn: dc=x\\nobjectClass: dcObject\\nobjectClass: organization\\no: x\\ndc: x\\n' | ldapadd -x -H ldap://{OURS}:3890 -D cn=a,dc=x -w s && for i in $(seq 50); do ldapsearch -x -H ldap://{OURS}:3890 -b dc=x -LLL >/dev/null || exit 1; done; ldapsearch -x -H ldap://{OURS}:3890 -b dc=x -LLL"
    )
    s.check("organization" in o, o)


def zone(s):
    open(s.dir + "/z", "w").write(
        '$TTL 60\n@ IN SOA a. b. 1 2 3 4 5\n@ IN NS ns.foo.test.\nns IN A 1.2.3.4\n@ IN A 1.2.3.4\nbig IN TXT "'
        + "a" * 250
        + '" "'
        + "b" * 250
        + '" "'
        + "c" * 250
        + '" "'
        + "d" * 250
        + '" "'
        + "e" * 250
        + '" "'
        + "f" * 250
        + '"\n'
    )
    os.chmod(s.dir, 0o777)


def look_up(s, port):
    time.sleep(1.5)
    for _ in range(5):
        o = s.client(f"dig -p {port} +time=2 +tries=2 @{OURS} foo.test +short; dig -p {port} +tcp +time=2 @{OURS} foo.test +short")
        s.check(o.count("1.2.3.4") == 2, o)
    o = s.client(f"dig -p {port} +time=2 +tries=2 @{OURS} big.foo.test TXT +bufsize=4096")
    s.check("ffff" in o, o)


@case
def bind9(s):
    zone(s)
    open(s.dir + "/n.conf", "w").write(
        f'options {{ listen-on port 5353 {{ {OURS}; }}; listen-on-v6 {{ none; }}; directory "{s.dir}"; pid-file none; recursion no; interface-interval 0; }};\ncontrols {{}};\nzone "foo.test" {{ type primary; file "{s.dir}/z"; }};\n'
    )
    s.server(["named", "-g", "-c", s.dir + "/n.conf"])
    look_up(s, 5353)


@case
def nsd(s):
    zone(s)
    open(s.dir + "/nsd.conf", "w").write(
        f'server:\n ip-address: {OURS}@5353\n server-count: 2\n username: ""\n zonesdir: "{s.dir}"\n pidfile: "{s.dir}/np"\n xfrdfile: "{s.dir}/xf"\n zonelistfile: "{s.dir}/zl"\n xfrdir: "{s.dir}"\nremote-control:\n control-enable: no\nzone:\n name: foo.test\n zonefile: z\n'
    )
    s.server(["nsd", "-d", "-c", s.dir + "/nsd.conf"])
    look_up(s, 5353)


@case
def knot(s):
    zone(s)
    open(s.dir + "/k.conf", "w").write(
        f"server:\n  listen: {OURS}@5353\n  rundir: {s.dir}\n  udp-workers: 2\ndatabase:\n  storage: {s.dir}/kdb\nzone:\n  - domain: foo.test\n    file: {s.dir}/z\n    zonefile-sync: -1\n"
    )
    os.makedirs(s.dir + "/kdb")
    s.server(["knotd", "-c", s.dir + "/k.conf"])
    look_up(s, 5353)


@case
def ngircd(s):
    open(s.dir + "/ng.conf", "w").write(
        f"[Global]\nName=irc.x.y\nInfo=x\nListen={OURS}\nPorts=6667\nServerUID=root\nServerGID=root\n[Options]\nDNS=no\nIdent=no\nPAM=no\n"
    )
    s.server(["ngircd", "-n", "-f", s.dir + "/ng.conf"])
    s.wait(6667)
    o = s.client(f"(printf 'NICK a\\r\\nUSER a 0 * :a\\r\\n'; sleep 0.7; printf 'QUIT\\r\\n'; sleep 0.3) | timeout 5 ncat {OURS} 6667")
    s.check(" 001 a" in o, o)


@case
def dovecot(s):
    open(s.dir + "/d.conf", "w").write(
        f"protocols=imap\nimport_environment=TZ LD_PRELOAD SKINK_CONTROL SKINK_TOKEN SKINK_LIBRARY\nlisten={OURS}\nbase_dir={s.dir}/run\nstate_dir={s.dir}/state\nlog_path={s.dir}/dv.log\nssl=no\ndisable_plaintext_auth=no\nmail_location=maildir:{s.dir}/mail\ndefault_internal_user=dovecot\ndefault_login_user=dovenull\nservice imap-login {{\n inet_listener imap {{\n  port=1430\n }}\n}}\npassdb {{\n driver=static\n args=password=p\n}}\nuserdb {{\n driver=static\n args=uid=mail gid=mail home={s.dir}\n}}\nfirst_valid_uid=1\nmail_uid=mail\nmail_gid=mail\n"
    )
    os.chmod(s.dir, 0o777)
    subprocess.run(f"mkdir {s.dir}/mail; chown mail {s.dir}/mail", shell=True)
    s.server(["dovecot", "-F", "-c", s.dir + "/d.conf"])
    s.wait(1430)
    o = s.client(f"curl -sS -m 15 imap://{OURS}:1430 -u u:p -X 'LIST \"\" *' -v", ok=False)
    s.check("INBOX" in o, o[-800:])


def echo3(s, port):
    for i in range(3):
        o = s.client(f"(echo hello{i}; sleep 0.3) | timeout 5 ncat {OURS} {port}")
        s.check(f"hello{i}" in o, o)


@case
def tcpserver(s):
    s.server(["tcpserver", "-H", "-R", "-l0", OURS, "7070", "cat"])
    s.wait(7070)
    echo3(s, 7070)


@case
def socket_activate(s):
    open(s.dir + "/a.py", "w").write("""import socket,os
s=socket.socket(fileno=3)
while 1:
    c,_=s.accept()
    while d:=c.recv(100): c.sendall(d)
    c.close()""")
    s.server(["systemd-socket-activate", "-l", f"{OURS}:7070", "/usr/bin/python3", s.dir + "/a.py"])
    time.sleep(0.5)
    echo3(s, 7070)


@case
def socket_activate_accept(s):
    s.server(["systemd-socket-activate", "--accept", "--inetd", "-l", f"{OURS}:7070", "/bin/cat"])
    time.sleep(0.5)
    echo3(s, 7070)


@case
def zmq(s):
    s.server(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import zmq
c=zmq.Context(2); r=c.socket(zmq.ROUTER); r.bind('tcp://{OURS}:5555'); p=c.socket(zmq.PUB); p.bind('tcp://{OURS}:5556')
while 1:
    m=r.recv_multipart(); r.send_multipart(m); p.send(m[-1])""",
        ]
    )
    s.wait(5555)
    o = s.client(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import zmq,os
c=zmq.Context(); q=c.socket(zmq.REQ); q.connect('tcp://{OURS}:5555'); u=c.socket(zmq.SUB); u.connect('tcp://{OURS}:5556'); u.subscribe(b'')
import time; time.sleep(0.5)
for i in range(2000):
    q.send(b'x%d'%i); assert q.recv()==b'x%d'%i
    assert u.recv()==b'x%d'%i
b=os.urandom(5000000); q.send(b); assert q.recv()==b; assert u.recv()==b
print('good')""",
        ]
    )
    s.check("good" in o, o)


@case
def grpc(s):
    s.server(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import grpc
from concurrent import futures
class H(grpc.GenericRpcHandler):
    def service(self,d): return grpc.unary_unary_rpc_method_handler(lambda q,c:q)
s=grpc.server(futures.ThreadPoolExecutor(4),options=[('grpc.max_receive_message_length',-1)]); s.add_generic_rpc_handlers((H(),)); assert s.add_insecure_port('{OURS}:50051'); s.start(); s.wait_for_termination()""",
        ]
    )
    s.wait(50051)
    o = s.client(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import grpc,os
c=grpc.insecure_channel('{OURS}:50051',options=[('grpc.max_receive_message_length',-1)]); m=c.unary_unary('/a/b')
for i in range(500): assert m(b'%d'%i,timeout=10)==b'%d'%i
b=os.urandom(3000000); assert m(b,timeout=10)==b
fs=[m.future(b'%d'%i,timeout=10) for i in range(500)]; assert all(f.result()==b'%d'%i for i,f in enumerate(fs)); print('good')""",
        ]
    )
    s.check("good" in o, o)


@case
def snmpd(s):
    open(s.dir + "/s.conf", "w").write(f"agentAddress udp:{OURS}:1610,tcp:{OURS}:1610\nrocommunity public\n")
    s.server(["snmpd", "-f", "-C", "-c", s.dir + "/s.conf", "-p", s.dir + "/sp"])
    time.sleep(1)
    o = s.client(
        f"snmpget -v2c -c public udp:{OURS}:1610 1.3.6.1.2.1.1.1.0; snmpwalk -v2c -c public udp:{OURS}:1610 1.3.6.1.2.1.1 | wc -l; snmpget -v2c -c public tcp:{OURS}:1610 1.3.6.1.2.1.1.1.0"
    )
    s.check(o.count("STRING") == 2, o)


@case
def chrony(s):
    open(s.dir + "/c.conf", "w").write(f"local stratum 5\nallow all\nbindaddress {OURS}\ncmdport 0\n")
    s.server(["chronyd", "-x", "-d", "-u", "root", "-f", s.dir + "/c.conf"])
    time.sleep(1.5)
    o = s.client(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import socket
u=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); u.settimeout(3); u.connect(('{OURS}',123)); u.send(b'\\x23'+bytes(47)); d=u.recv(100); assert len(d)==48 and d[0]&7==4,d; print('good')""",
        ]
    )
    s.check("good" in o, o)


@case
def rsyslog(s):
    open(s.dir + "/r.conf", "w").write(
        f'module(load="imtcp")\nmodule(load="imudp")\ninput(type="imtcp" port="5140" address="{OURS}")\ninput(type="imudp" port="5140" address="{OURS}")\n*.* action(type="omfile" file="{s.dir}/out")\n'
    )
    s.server(["rsyslogd", "-n", "-f", s.dir + "/r.conf", "-i", s.dir + "/rp"])
    s.wait(5140)
    s.client(
        f'for i in $(seq 200); do echo "<13>test: t$i"; done | timeout 3 ncat --send-only {OURS} 5140; for i in $(seq 50); do echo "<13>test: u$i" | ncat -u --send-only {OURS} 5140; done; sleep 1'
    )
    o = open(s.dir + "/out").read()
    s.check(
        o.count(" t") >= 200 and o.count(": u") >= 50 or (o.count("t") >= 200 and o.count("u5") > 0),
        (o.count(": t"), o.count(": u"), o[-300:]),
    )


@case
def icecast(s):
    open(s.dir + "/i.xml", "w").write(
        f"<icecast><limits><sources>2</sources></limits><authentication><source-password>h</source-password><admin-user>a</admin-user><admin-password>h</admin-password></authentication><hostname>x</hostname><listen-socket><port>8000</port><bind-address>{OURS}</bind-address></listen-socket><paths><logdir>{s.dir}</logdir><webroot>/usr/share/icecast2/web</webroot><adminroot>/usr/share/icecast2/admin</adminroot></paths><security><chroot>0</chroot><changeowner><user>nobody</user><group>nogroup</group></changeowner></security></icecast>"
    )
    os.chmod(s.dir, 0o777)
    s.server(["icecast2", "-c", s.dir + "/i.xml"])
    s.wait(8000)
    o = s.client(
        f"(head -c 3000000 /dev/zero | curl -sS --limit-rate 1M -u source:h -X PUT -H 'Content-Type: audio/mpeg' -H 'Expect:' -T - http://{OURS}:8000/m >/dev/null &) ; sleep 1; curl -sS -m 3 http://{OURS}:8000/m | wc -c; curl -sS http://{OURS}:8000/status-json.xsl | head -c 200",
        ok=False,
    )
    s.check(int([l for l in o.splitlines() if l.strip().isdigit()][0]) > 100000, o)


@case
def zookeeper(s):
    os.makedirs(s.dir + "/zk")
    open(s.dir + "/z.cfg", "w").write(
        f"tickTime=2000\ndataDir={s.dir}/zk\nclientPort=2181\nclientPortAddress={OURS}\n4lw.commands.whitelist=*\nadmin.enableServer=false\n"
    )
    cp = ":".join(["/etc/zookeeper/conf"] + [f"/usr/share/java/{j}" for j in os.listdir("/usr/share/java") if j.endswith(".jar")])
    s.server(["java", "-cp", cp, "org.apache.zookeeper.server.quorum.QuorumPeerMain", s.dir + "/z.cfg"])
    s.wait(2181)
    o = s.client(f"for i in 1 2 3; do echo ruok | timeout 3 ncat {OURS} 2181; done; echo srvr | timeout 3 ncat {OURS} 2181")
    s.check(o.count("imok") == 3 and "Mode" in o, o)


@case
def prosody(s):
    open(s.dir + "/p.lua", "w").write(
        f'interfaces={{"{OURS}"}}\ndata_path="{s.dir}"\npidfile="{s.dir}/pp"\nrun_as_root=true\ns2s_ports={{}}\nmodules_disabled={{"s2s"}}\nallow_unencrypted_plain_auth=true\nc2s_require_encryption=false\nVirtualHost "x"\n'
    )
    os.chmod(s.dir, 0o777)
    s.server(["prosody", "--config", s.dir + "/p.lua", "-F"])
    s.wait(5222)
    o = s.client(
        f"(printf \"<?xml version='1.0'?><stream:stream to='x' xmlns='jabber:client' xmlns:stream='http://etherx.jabber.org/streams' version='1.0'>\"; sleep 0.7) | timeout 5 ncat {OURS} 5222"
    )
    s.check("from='x'" in o, o)


@case
def sslh_fork(s):
    d = files(s)
    back(s, d)
    s.server(["sslh", "-f", "-u", "nobody", "-p", f"{OURS}:8080", "--http", f"{PEER}:8081", "-P", s.dir + "/sp"])
    web(s, 8080)


@case
def rinetd(s):
    d = files(s)
    back(s, d)
    open(s.dir + "/r.conf", "w").write(f"{OURS} 8080 {PEER} 8081\n")
    s.server(["rinetd", "-f", "-c", s.dir + "/r.conf"])
    web(s, 8080)


@case
def unicorn(s):
    open(s.dir + "/config.ru", "w").write("run ->(e){[200,{'Content-Type'=>'text/plain'},['y'*22000]]}")
    open(s.dir + "/u.rb", "w").write(f"worker_processes 3\nlisten '{OURS}:8080'\n")
    s.server(["unicorn", "-c", s.dir + "/u.rb", s.dir + "/config.ru"], cwd=s.dir)
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/", 1000, 10)


@case
def thin(s):
    open(s.dir + "/config.ru", "w").write("run ->(e){[200,{'Content-Type'=>'text/plain'},['y'*22000]]}")
    s.server(["thin", "-a", OURS, "-p", "8080", "-R", s.dir + "/config.ru", "start"], cwd=s.dir)
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/", 1000, 10, "-k")


@case
def uvicorn(s):
    open(s.dir + "/a.py", "w").write(
        "async def app(scope,receive,send):\n    if scope['type']!='http': return\n    await send({'type':'http.response.start','status':200,'headers':[(b'content-length',b'22000')]})\n    await send({'type':'http.response.body','body':b'y'*22000})\n"
    )
    s.server(["uvicorn", "--host", OURS, "--port", "8080", "--workers", "2", "a:app"], cwd=s.dir)
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/", 1000, 10)


@case
def hypercorn(s):
    open(s.dir + "/a.py", "w").write(
        "async def app(scope,receive,send):\n    if scope['type']!='http': return\n    await send({'type':'http.response.start','status':200,'headers':[(b'content-length',b'22000')]})\n    await send({'type':'http.response.body','body':b'y'*22000})\n"
    )
    s.server(["hypercorn", "-b", f"{OURS}:8080", "-w", "2", "a:app"], cwd=s.dir)
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/", 500, 10)


@case
def gearman(s):
    s.server(["gearmand", "-L", OURS, "-p", "4730", "-l", s.dir + "/g.log"])
    s.wait(4730)
    o = s.client(
        f"(gearman -h {OURS} -w -c 20 -f wc -- wc -l &) ; sleep 0.5; for i in $(seq 20); do printf 'a\\nb\\n' | gearman -h {OURS} -f wc; done"
    )
    s.check(o.count("2") >= 20, o)


@case
def busybox(s):
    d = files(s)
    s.server(["busybox", "httpd", "-f", "-p", f"{OURS}:8080", "-h", d])
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/22k", 500, 5)
    s.client(f"curl -sS -m 20 http://{OURS}:8080/big | cmp - {d}/big")


@case
def mini_httpd(s):
    d = files(s)
    s.server(["mini_httpd", "-D", "-h", OURS, "-p", "8080", "-d", d, "-u", "nobody", "-i", s.dir + "/mp"])
    s.wait(8080)
    ask(s, f"http://{OURS}:8080/22k", 500, 5)


@case
def webfsd(s):
    d = files(s)
    s.server(["webfsd", "-F", "-i", OURS, "-p", "8080", "-r", d])
    web(s, 8080)


@case
def turn(s):
    s.server(
        [
            "turnserver",
            "-L",
            OURS,
            "-p",
            "3478",
            "--no-tls",
            "--no-dtls",
            "-a",
            "-u",
            "u:p",
            "-r",
            "x",
            "--no-cli",
            "--log-file",
            "stdout",
            "--pidfile",
            s.dir + "/tp",
            "--allow-loopback-peers",
            "--relay-ip",
            OURS,
        ]
    )
    time.sleep(2)
    o = s.client(f"timeout 20 turnutils_stunclient {OURS}")
    s.check("UDP reflexive addr" in o, o)
    o = s.client(
        f"timeout 30 turnutils_uclient -y -u u -w p -n 50 -m 2 {OURS} 2>&1 | tail -20; timeout 30 turnutils_uclient -t -T -y -u u -w p -n 20 -m 1 {OURS} 2>&1 | tail -3",
        ok=False,
        timeout=60,
    )
    s.check("Total lost packets 0" in o, o)


@case
def websockets(s):
    s.server(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import asyncio,websockets
async def h(w,*a):
    async for m in w: await w.send(m)
async def main():
    async with websockets.serve(h,'{OURS}',8765,max_size=None): await asyncio.Future()
asyncio.run(main())""",
        ]
    )
    s.wait(8765)
    o = s.client(
        [
            "/usr/bin/python3",
            "-c",
            f"""
import asyncio,websockets,os
async def main():
    async with websockets.connect('ws://{OURS}:8765',max_size=None) as w:
        for i in range(500):
            await w.send(str(i)); assert await w.recv()==str(i)
        b=os.urandom(3000000); await w.send(b); assert await w.recv()==b
    print('good')
asyncio.run(main())""",
        ]
    )
    s.check("good" in o, o)


@case
def mosh(s):
    o = s.client(["mosh-server", "new", "-i", OURS, "-p", "60001", "--", "/bin/cat"], inside=True, ok=False)
    s.check("MOSH CONNECT" in o, o)
    key = o.split("MOSH CONNECT ")[1].split()[1]
    o = s.client(
        f"(sleep 1; echo hello; sleep 1) | MOSH_KEY={key} TERM=xterm LC_ALL=C.UTF-8 timeout 6 script -qec 'stty rows 24 cols 80; mosh-client {OURS} 60001' /dev/null",
        ok=False,
    )
    s.check(o.count("hello") >= 1, o[-600:])


def ftp(s, port, big, login=""):
    """Downloads, passive and active, and uploads."""
    s.wait(port)
    url = f"ftp://{login}{OURS}:{port}"
    for how in "", "--disable-epsv", "-P -":
        s.client(f"curl -sS -m 20 {how} {url}/big | cmp - {big}")
    listed = s.client(f"curl -sS -m 20 {url}/")
    s.check("22k" in listed, listed)
    s.client(f"for _ in 1 2 3; do curl -sS -m 20 {url}/small & curl -sS -m 20 {url}/22k & done | wc -c | grep -qx 66060")


@case
def vsftpd(s):
    d = files(s)
    os.makedirs(s.dir + "/empty")
    open(s.dir + "/v.conf", "w").write(f"""listen=YES
listen_address={OURS}
listen_port=2121
background=NO
anonymous_enable=YES
no_anon_password=YES
anon_root={d}
secure_chroot_dir={s.dir}/empty
isolate_network=NO
connect_from_port_20=NO
""")
    s.server(["vsftpd", s.dir + "/v.conf"])
    ftp(s, 2121, d + "/big")


@case
def proftpd(s):
    d = files(s)
    open(s.dir + "/p.conf", "w").write(f"""ServerName x
ServerType standalone
DefaultAddress {OURS}
SocketBindTight on
Port 2121
PidFile {s.dir}/p.pid
ScoreboardFile {s.dir}/p.score
DelayTable none
User nobody
Group nogroup
WtmpLog off
RequireValidShell off
<Anonymous {d}>
 User www-data
 Group www-data
 UserAlias anonymous www-data
</Anonymous>
""")
    s.server(["proftpd", "-n", "-c", s.dir + "/p.conf"])
    ftp(s, 2121, d + "/big")


def through(s, proxy, d):
    """Asks the server behind a proxy, once for much, and many times at a time."""
    s.client(f"curl -sS -m 20 -x {proxy} http://{PEER}:8081/big | cmp - {d}/big")
    s.client(f"for i in $(seq 20); do curl -sS -m 20 -x {proxy} http://{PEER}:8081/22k & done | wc -c | grep -qx 440000")


@case
def pgbouncer(s):
    b, pg = database(s)
    os.chmod(s.dir, 0o777)
    listen = ["-c", f"listen_addresses={PEER}", "-c", "unix_socket_directories=" + pg, "-c", "fsync=off"]
    s.server(["runuser", "-u", "postgres", "--", b + "/postgres", "-D", pg, *listen], outside=True)
    s.wait(5432, PEER)
    open(s.dir + "/users", "w").write('"postgres" ""\n')
    open(s.dir + "/b.ini", "w").write(f"""[databases]
postgres = host={PEER} port=5432
[pgbouncer]
listen_addr = {OURS}
listen_port = 6432
unix_socket_dir =
auth_type = trust
auth_file = {s.dir}/users
pool_mode = transaction
logfile = {s.dir}/bouncer.log
""")
    s.server(["pgbouncer", s.dir + "/b.ini"], user="postgres")
    s.wait(6432)
    s.client(f"{b}/pgbench -q -i -s 2 -h {OURS} -p 6432 -U postgres postgres")
    said = s.client(f"{b}/pgbench -n -c 8 -j 2 -t 200 -h {OURS} -p 6432 -U postgres postgres")
    s.check("1600/1600" in said, said)


@case
def distcc(s):
    s.server(["distccd", "--no-detach", "--daemon", "--allow", "10.77.0.0/24", "--listen", OURS, "--jobs", "4", "--log-stderr"], user="nobody", env={"DISTCC_CMDLIST": ""})
    s.wait(3632)
    open(s.dir + "/p.c", "w").write("int main(void) { return 0; }\n")
    make = f"cd {s.dir}; for i in 1 2 3 4 5 6; do HOME={s.dir} DISTCC_HOSTS={OURS} DISTCC_FALLBACK=0 distcc gcc -c p.c -o p$i.o & done; wait; ls p?.o | wc -l"
    s.check("6" in s.client(make), "objects")


@case
def freeradius(s):
    shutil.copytree("/etc/freeradius/3.0", s.dir + "/raddb", symlinks=True)
    subprocess.run(f"rm -f {s.dir}/raddb/sites-enabled/* {s.dir}/raddb/mods-enabled/eap", shell=True)
    open(s.dir + "/raddb/sites-enabled/one", "w").write(f"""server one {{
 listen {{
  type = auth
  ipaddr = {OURS}
  port = 1812
 }}
 authorize {{
  files
  pap
 }}
 authenticate {{
  Auth-Type PAP {{
   pap
  }}
 }}
}}
""")
    open(s.dir + "/raddb/clients.conf", "w").write("client all { ipaddr = 10.77.0.0/24\n secret = s }\n")
    open(s.dir + "/raddb/mods-config/files/authorize", "w").write('bob Cleartext-Password := "hello"\n')
    subprocess.run(f"chown -R freerad {s.dir}/raddb; chmod 777 {s.dir}", shell=True)
    s.server(["freeradius", "-f", "-l", s.dir + "/radius.log", "-d", s.dir + "/raddb"])
    time.sleep(2)
    said = s.client(f"for i in $(seq 30); do radtest bob hello {OURS} 0 s; done")
    s.check(said.count("Access-Accept") >= 30, said[-600:])


@case
def qemu_nbd(s):
    d = files(s)
    s.server(["qemu-nbd", "-r", "-f", "raw", "-b", OURS, "-p", "10810", "-e", "4", "-t", d + "/big"])
    s.wait(10810)
    s.client(f"for i in 1 2 3; do qemu-img convert -O raw nbd://{OURS}:10810 {s.dir}/got$i & done; wait; for i in 1 2 3; do cmp -n 20000000 {s.dir}/got$i {d}/big || exit 1; done")


@case
def xinetd(s):
    entry = "service s%d\n{\n type = UNLISTED\n port = %d\n bind = " + OURS + "\n socket_type = %s\n protocol = %s\n wait = %s\n user = root\n server = %s\n server_args = %s\n}\n"
    open(s.dir + "/x.conf", "w").write(
        "defaults\n{\n instances = 60\n}\n"
        + entry % (1, 7071, "stream", "tcp", "no", "/bin/cat", "-u")
        + entry % (3, 2323, "stream", "tcp", "no", "/usr/sbin/in.telnetd", "-L /bin/cat")
    )
    s.server(["xinetd", "-dontfork", "-f", s.dir + "/x.conf"])
    s.wait(7071)
    for i in range(3):
        said = s.client(f"(echo hello{i}; sleep 0.3) | ncat {OURS} 7071")
        s.check(f"hello{i}" in said, said)


@case
def gdb(s):
    open(s.dir + "/p.c", "w").write("int main(void) { int i = 0; while (i < 1000) i++; return 0; }\n")
    subprocess.run(["gcc", "-g", "-o", s.dir + "/p", s.dir + "/p.c"], check=True)
    s.server(["gdbserver", "--once", f"{OURS}:2345", s.dir + "/p"])
    time.sleep(1)
    said = s.client(f"gdb -batch -ex 'target remote {OURS}:2345' -ex 'break main' -ex continue -ex next -ex 'info locals' -ex 'info sharedlibrary' {s.dir}/p")
    s.check("i = 0" in said, said[-600:])


PSGI = """my $app = sub { my $env = shift; open my $f, '<', "%s" . $env->{PATH_INFO} or return [404, [], []]; local $/; [200, ['Content-Type' => 'text/plain'], [<$f>]] };\n"""


@case
def starman(s):
    d = files(s)
    open(s.dir + "/a.psgi", "w").write(PSGI % d)
    s.server(["starman", "--listen", f"{OURS}:8080", "--workers", "3", s.dir + "/a.psgi"])
    web(s, 8080)


@case
def mojolicious(s):
    d = files(s)
    open(s.dir + "/a.pl", "w").write(f"use Mojolicious::Lite; app->static->paths->[0] = '{d}'; app->log->level('fatal'); app->start;\n")
    s.server(["perl", s.dir + "/a.pl", "prefork", "-w", "3", "-l", f"http://{OURS}:8080"], cwd=s.dir)
    s.wait(8080)
    s.client(f"curl -sS -m 20 http://{OURS}:8080/big | cmp - {d}/big")
    s.client(f"for i in $(seq 30); do curl -sS -m 20 http://{OURS}:8080/22k & done | wc -c | grep -qx 660000")


@case
def pdns_recursor(s):
    os.makedirs(s.dir + "/run")
    open(s.dir + "/zone", "w").write("$ORIGIN x.\n@ IN SOA a b 1 1 1 1 1\n@ IN NS a\na IN A 10.1.2.3\n")
    os.chmod(s.dir, 0o777)
    s.server(["pdns_recursor", f"--local-address={OURS}", "--local-port=5353", f"--socket-dir={s.dir}/run", "--auth-zones=x=" + s.dir + "/zone", "--threads=2", "--daemon=no", "--allow-from=10.77.0.0/24", "--reuseport=yes", "--config-dir=" + s.dir])
    time.sleep(2)
    said = s.client(f"for i in $(seq 20); do dig +short +time=2 @{OURS} -p 5353 a.x; dig +tcp +short @{OURS} -p 5353 a.x; done")
    s.check(said.count("10.1.2.3") == 40, said[-400:])


@case
def dnsdist(s):
    zone_of = "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('%s', 5300))\nwhile True:\n    d, a = s.recvfrom(512)\n    s.sendto(d[:2] + b'\\x81\\x80\\x00\\x01\\x00\\x01\\x00\\x00\\x00\\x00' + d[12:d.index(b'\\x00', 12) + 5] + b'\\xc0\\x0c\\x00\\x01\\x00\\x01\\x00\\x00\\x00\\x01\\x00\\x04\\x0a\\x01\\x02\\x03', a)\n" % PEER
    s.server(["python3", "-c", zone_of], outside=True)
    open(s.dir + "/d.conf", "w").write(f"setLocal('{OURS}:5353', {{reusePort=true}})\naddLocal('{OURS}:5353', {{reusePort=true}})\nnewServer({{address='{PEER}:5300', healthCheckMode='up'}})\nsetACL('10.77.0.0/24')\n")
    s.server(["dnsdist", "-C", s.dir + "/d.conf", "--supervised"])
    time.sleep(1.5)
    said = s.client(f"for i in $(seq 20); do dig +noedns +short +time=2 @{OURS} -p 5353 a$i.x; done")
    s.check(said.count("10.1.2.3") == 20, said[-400:])


@case
def kamailio(s):
    open(s.dir + "/k.cfg", "w").write(f"""#!KAMAILIO
debug=1
log_stderror=yes
children=3
listen=udp:{OURS}:5060
listen=tcp:{OURS}:5060
loadmodule "sl.so"
request_route {{ sl_send_reply("200", "fine"); }}
""")
    s.server(["kamailio", "-DD", "-f", s.dir + "/k.cfg", "-P", s.dir + "/k.pid", "-Y", s.dir])
    s.wait(5060)
    ask = f"""import socket
def options(kind, i):
    return (f'OPTIONS sip:x@{OURS} SIP/2.0\\r\\nVia: SIP/2.0/{{kind}} {PEER}:5999;branch=z9hG4bK{{i}}\\r\\nFrom: <sip:a@x>;tag=1\\r\\nTo: <sip:x@x>\\r\\nCall-ID: {{i}}\\r\\nCSeq: 1 OPTIONS\\r\\nMax-Forwards: 9\\r\\nContent-Length: 0\\r\\n\\r\\n').encode()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.bind(('{PEER}', 5999))
u.settimeout(5)
for i in range(50):
    u.sendto(options('UDP', i), ('{OURS}', 5060))
    assert b'200 fine' in u.recv(2000)
for i in range(10):
    t = socket.create_connection(('{OURS}', 5060), 5)
    for j in range(3):
        t.sendall(options('TCP', i * 10 + j))
        assert b'200 fine' in t.recv(2000)
"""
    s.client(["python3", "-c", ask])


@case
def openvpn(s):
    key = s.dir + "/key"
    subprocess.run(["openvpn", "--genkey", "secret", key], check=True)
    d = files(s)
    for proto, port in ("udp", 1194), ("tcp", 1195):
        common = f"--dev tun{port} --dev-type tun --secret {key} --cipher AES-256-CBC --port {port} --verb 1"
        name = proto if proto == "udp" else "tcp-server"
        s.server(f"openvpn {common} --proto {name} --local {OURS} --ifconfig 10.78.{port - 1190}.1 10.78.{port - 1190}.2")
        name = proto if proto == "udp" else "tcp-client"
        s.server(f"openvpn {common} --proto {name} --remote {OURS} --nobind --ifconfig 10.78.{port - 1190}.2 10.78.{port - 1190}.1", outside=True)
        s.client(f"for i in $(seq 50); do ping -c 1 -W 1 10.78.{port - 1190}.1 >/dev/null && break; sleep 0.1; done; ping -q -c 20 -i 0.02 -s 1300 10.78.{port - 1190}.1 | grep ' 0% packet loss'")
        # Both ends of the tunnel are the kernel's, so is what is fetched through it.
        s.spawn(s.at_server + ["busybox", "httpd", "-f", "-p", f"10.78.{port - 1190}.1:80", "-h", d], f"httpd{port}.log")
        time.sleep(0.3)
        s.client(f"curl -sS -m 30 http://10.78.{port - 1190}.1/big | cmp - {d}/big")


@case
def danted(s):
    d = files(s)
    back(s, d)
    open(s.dir + "/s.conf", "w").write(f"""logoutput: stderr
internal: {OURS} port = 1080
external: {OURS}
clientmethod: none
socksmethod: none
user.privileged: root
user.unprivileged: nobody
client pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
socks pass {{ from: 0.0.0.0/0 to: 0.0.0.0/0 }}
""")
    s.server(["danted", "-f", s.dir + "/s.conf", "-p", s.dir + "/s.pid"])
    s.wait(1080)
    through(s, f"socks5://{OURS}:1080", d)


@case
def microsocks(s):
    d = files(s)
    back(s, d)
    s.server(["microsocks", "-i", OURS, "-p", "1080"])
    s.wait(1080)
    through(s, f"socks5://{OURS}:1080", d)


@case
def shadowsocks(s):
    d = files(s)
    back(s, d)
    keys = ["-k", "secret", "-m", "aes-256-gcm"]
    s.server(["ss-server", "-s", OURS, "-p", "8388", "-u", *keys])
    s.wait(8388)
    s.server(["ss-local", "-s", OURS, "-p", "8388", "-l", "1080", "-b", PEER, *keys], outside=True)
    s.wait(1080, PEER)
    s.client(f"curl -sS -m 20 -x socks5://{PEER}:1080 http://{PEER}:8081/big | cmp - {d}/big")


@case
def privoxy(s):
    d = files(s)
    back(s, d)
    open(s.dir + "/p.conf", "w").write(f"listen-address {OURS}:8118\nconfdir {s.dir}\nlogdir {s.dir}\n")
    s.server(["privoxy", "--no-daemon", s.dir + "/p.conf"])
    s.wait(8118)
    through(s, f"http://{OURS}:8118", d)


@case
def syslog_ng(s):
    open(s.dir + "/l.conf", "w").write(f"""@version: 3.38
source n {{ network(ip("{OURS}") port(5514) transport("tcp") max-connections(50)); network(ip("{OURS}") port(5514) transport("udp")); }};
destination f {{ file("{s.dir}/got.log"); }};
log {{ source(n); destination(f); }};
""")
    s.server(["syslog-ng", "-F", "--no-caps", "-f", s.dir + "/l.conf", "-R", s.dir + "/persist", "-c", s.dir + "/ctl", "-p", s.dir + "/pid"])
    s.wait(5514)
    s.client(f"for i in $(seq 10); do logger -n {OURS} -P 5514 -T said-by-tcp & logger -n {OURS} -P 5514 -d said-by-udp & done; wait; sleep 1")
    got = open(s.dir + "/got.log").read()
    s.check(got.count("said-by-tcp") == 10 and got.count("said-by-udp") == 10, got[-500:])


@case
def nrpe(s):
    open(s.dir + "/n.cfg", "w").write(f"server_address={OURS}\nserver_port=5666\nnrpe_user=nobody\nnrpe_group=nogroup\nallowed_hosts=10.77.0.0/24\ncommand[hi]=/bin/echo hello\npid_file={s.dir}/n.pid\n")
    s.server(["nrpe", "-c", s.dir + "/n.cfg", "-f"])
    s.wait(5666)
    said = s.client(f"for i in $(seq 10); do /usr/lib/nagios/plugins/check_nrpe -H {OURS} -c hi; done")
    s.check(said.count("hello") == 10, said)


@case
def zabbix(s):
    os.chmod(s.dir, 0o777)
    open(s.dir + "/z.conf", "w").write(f"Server={PEER}\nListenIP={OURS}\nLogType=console\nPidFile={s.dir}/z.pid\nStartAgents=3\nHostname=x\nAllowRoot=1\n")
    s.server(["zabbix_agentd", "-f", "-c", s.dir + "/z.conf"])
    s.wait(10050)
    ask = f"import socket\nfor _ in range(30):\n    s = socket.create_connection(('{OURS}', 10050), 5)\n    s.sendall(b'ZBXD\\x01' + (10).to_bytes(8, 'little') + b'agent.ping')\n    s.shutdown(1)\n    d = b''\n    while True:\n        p = s.recv(99)\n        if not p: break\n        d += p\n    assert d[13:] == b'1', d\n"
    s.client(["python3", "-c", ask])


@case
def bird(s):
    for side, own, other, routes in (False, OURS, PEER, 5), (True, PEER, OURS, 7):
        routed = "\n".join(f" route 10.{100 + routes}.{i}.0/24 blackhole;" for i in range(routes))
        conf = f"{s.dir}/bird{routes}.conf"
        open(conf, "w").write(f"""router id {own};
protocol device {{ }}
protocol static {{ ipv4;
{routed}
}}
protocol bgp b {{ local {own} port 1179 as {65000 + routes}; neighbor {other} port 1179 as {65000 + 12 - routes}; multihop; connect delay time 1; ipv4 {{ import all; export all; }}; }}
""")
        s.server(["bird", "-f", "-c", conf, "-s", f"{s.dir}/ctl{routes}", "-P", f"{s.dir}/pid{routes}"], outside=side)
    def routes():
        said = subprocess.run(["birdc", "-s", s.dir + "/ctl7", "show", "route", "count"], capture_output=True, text=True).stdout
        return "12 of 12" in said
    s.until(routes, "12 routes")


@case
def krb5(s):
    open(s.dir + "/krb5.conf", "w").write(f"[libdefaults]\ndefault_realm = X\ndns_lookup_kdc = false\n[realms]\nX = {{\n kdc = {OURS}:8800\n}}\n")
    open(s.dir + "/kdc.conf", "w").write(f"[realms]\nX = {{\n database_name = {s.dir}/db\n key_stash_file = {s.dir}/stash\n kdc_listen = {OURS}:8800\n kdc_tcp_listen = {OURS}:8800\n}}\n")
    env = {"KRB5_CONFIG": s.dir + "/krb5.conf", "KRB5_KDC_PROFILE": s.dir + "/kdc.conf"}
    subprocess.run(["kdb5_util", "create", "-s", "-r", "X", "-P", "m"], env={**os.environ, **env}, check=True, capture_output=True)
    subprocess.run(["kadmin.local", "-q", "addprinc -pw pass bob"], env={**os.environ, **env}, check=True, capture_output=True)
    s.server(["krb5kdc", "-n"], env=env)
    s.wait(8800)
    told = " ".join(f"{key}={value}" for key, value in env.items())
    s.client(f"export {told} KRB5CCNAME={s.dir}/cc; for i in 1 2 3 4 5; do echo pass | kinit bob >/dev/null || exit 1; done; klist | grep krbtgt")


@case
def redis_replica(s):
    s.server(["redis-server", "--bind", PEER, "--port", "6390", "--save", "", "--dir", s.dir, "--protected-mode", "no", "--repl-diskless-sync-delay", "0"], outside=True)
    s.wait(6390, PEER)
    s.client(f"redis-benchmark -h {PEER} -p 6390 -q -n 100000 -r 100000 -d 200 -t set -P 32")
    s.server(["redis-server", "--bind", OURS, "--port", "6391", "--save", "", "--dir", s.dir, "--protected-mode", "no", "--replicaof", PEER, "6390", "--repl-diskless-sync-delay", "0"])
    s.server(["redis-server", "--bind", PEER, "--port", "6392", "--save", "", "--dir", s.dir, "--protected-mode", "no", "--replicaof", OURS, "6391"], outside=True)
    size = lambda host, port: s.client(f"redis-cli -h {host} -p {port} dbsize", ok=False).strip()
    s.wait(6391)
    s.until(lambda: size(PEER, 6390) == size(OURS, 6391) == size(PEER, 6392) != "0", "the replicas have all")
    s.client(f"redis-benchmark -h {PEER} -p 6390 -q -n 50000 -r 100000 -d 100 -t set,lpush -P 16")
    digest = lambda host, port: s.client(f"redis-cli -h {host} -p {port} dbsize; redis-cli -h {host} -p {port} info replication | grep -o 'offset:.*' | head -1")
    s.until(lambda: size(PEER, 6390) == size(OURS, 6391) == size(PEER, 6392), "the replicas follow")


@case
def redis_sentinel(s):
    s.server(["redis-server", "--bind", OURS, "--port", "6390", "--save", "", "--dir", s.dir, "--protected-mode", "no"])
    s.server(["redis-server", "--bind", PEER, "--port", "6391", "--save", "", "--dir", s.dir, "--protected-mode", "no", "--replicaof", OURS, "6390"], outside=True)
    s.wait(6390)
    open(s.dir + "/se.conf", "w").write(f"bind {OURS}\nport 26379\nprotected-mode no\nsentinel monitor m {OURS} 6390 1\nsentinel down-after-milliseconds m 1000\nsentinel failover-timeout m 2000\n")
    s.server(["redis-sentinel", s.dir + "/se.conf"])
    s.wait(26379)
    s.until(lambda: "6391" in s.client(f"redis-cli -h {OURS} -p 26379 sentinel replicas m", ok=False), "the sentinel knows the replica")
    s.client(f"redis-cli -h {OURS} -p 6390 shutdown nosave", ok=False)
    s.until(lambda: "6391" in s.client(f"redis-cli -h {OURS} -p 26379 sentinel get-master-addr-by-name m", ok=False), "the sentinel fails over")


@case
def inspircd(s):
    os.chmod(s.dir, 0o777)
    open(s.dir + "/i.conf", "w").write(f"""<server name="i.x" description="x" network="x">
<admin name="x" nick="x" email="x">
<bind address="{OURS}" port="6667" type="clients">
<connect name="all" allow="*" localmax="100" globalmax="100" resolvehostnames="no" useident="no">
<log method="file" type="*" level="default" target="{s.dir}/i.log">
<pid file="{s.dir}/i.pid">
""")
    s.server(["inspircd", "--nofork", "--runasroot", "--config", s.dir + "/i.conf"])
    s.wait(6667)
    talk = f"""import socket
def join(n):
    s = socket.create_connection(('{OURS}', 6667), 10)
    f = s.makefile('rw', newline='\\r\\n')
    f.write(f'NICK n{{n}}\\nUSER n{{n}} 0 * :x\\n'); f.flush()
    for line in f:
        if line.startswith('PING'):
            f.write('PONG ' + line[5:].strip() + '\\n'); f.flush()
        if ' 376 ' in line or ' 422 ' in line: break
    f.write('JOIN #c\\n'); f.flush()
    for line in f:
        if ' 366 ' in line: break
    return f
all = [join(n) for n in range(20)]
all[0].write('PRIVMSG #c :hello\\n'); all[0].flush()
for f in all[1:]:
    for line in f:
        if 'PRIVMSG #c :hello' in line: break
    else: raise SystemExit('not heard')
"""
    s.client(["python3", "-c", talk])


@case
def cups(s):
    os.makedirs(s.dir + "/c")
    open(s.dir + "/c/cupsd.conf", "w").write(f"Listen {OURS}:631\nListen 127.0.0.1:631\nWebInterface Yes\n<Location />\nAllow from all\n</Location>\nMaxClients 50\n")
    open(s.dir + "/c/cups-files.conf", "w").write(f"ServerRoot {s.dir}/c\nStateDir {s.dir}/c\nCacheDir {s.dir}/c\nRequestRoot {s.dir}/c\nTempDir {s.dir}/c\nErrorLog {s.dir}/c.log\nAccessLog {s.dir}/a.log\nPageLog {s.dir}/p.log\n")
    s.server(["cupsd", "-f", "-c", s.dir + "/c/cupsd.conf", "-s", s.dir + "/c/cups-files.conf"])
    s.wait(631)
    s.client(f"for i in 1 2 3 4 5 6; do curl -sSf -m 10 http://{OURS}:631/robots.txt >/dev/null & done; wait; curl -sS -m 10 -o /dev/null -w '%{{http_code}}' http://{OURS}:631/ | grep -E '200|404|403'")
