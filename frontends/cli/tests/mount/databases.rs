//! Databases on a mount whose processes are killed in the middle of the load.
//!
//! Input: PostgreSQL, SQLite. Output: what was acknowledged, and what is there after the next mount. Invariant: a transaction counts as
//! acknowledged when its client has read the line that follows its commit, before the kill. Limits: what the host lacks is skipped;
//! PostgreSQL does not run as root, so root runs it as nobody.

use crate::bed::{Bed, has, is_root, said, texts, within};
use crate::common::{scratch, skip};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// The user nobody, and the group nogroup.
const NOBODY: u32 = 65_534;

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < Duration::from_secs(60), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Kills all processes of the mount at once.
fn kill(bed: &Bed) {
    for pid in bed.processes() {
        // One may end because of another.
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
    until("they are gone", || bed.processes().is_empty());
}

/// A program that prints the number of each transaction after its commit.
struct Client {
    process: Child,
    acknowledged: Arc<AtomicU64>,
}

impl Client {
    fn start(command: &mut Command, script: &Path) -> Client {
        let mut process = command
            .stdin(File::open(script).unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let last = acknowledged.clone();
        std::thread::spawn(move || {
            // Other lines are no transactions.
            for number in lines.map_while(Result::ok).flat_map(|line| line.parse()) {
                last.store(number, SeqCst);
            }
        });
        Client {
            process,
            acknowledged,
        }
    }

    fn acknowledged(&self) -> u64 {
        self.acknowledged.load(SeqCst)
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A PostgreSQL whose data are on the mount.
struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    /// For its socket and its log.
    beside: tempfile::TempDir,
    server: Option<Child>,
}

impl Postgres {
    /// None, with the reason printed, if it is not installed.
    fn find(bed: &Bed) -> Option<Postgres> {
        let all = fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
        let programs = all.map(|entry| entry.unwrap().path().join("bin"));
        let Some(programs) = programs.filter(|p| p.join("initdb").exists()).max() else {
            skip("PostgreSQL is not installed");
            return None;
        };
        Some(Postgres {
            programs,
            data: bed.path("data"),
            beside: scratch(),
            server: None,
        })
    }

    fn program(&self, name: &str) -> PathBuf {
        self.programs.join(name)
    }

    fn socket(&self) -> &str {
        self.beside.path().to_str().unwrap()
    }

    /// The arguments of a command of its own user.
    fn by_its_user(&self, name: &str, args: &[&str]) -> Vec<String> {
        let program = self.program(name).to_str().unwrap().to_owned();
        let user = match is_root() {
            true => vec![
                "setpriv".to_owned(),
                format!("--reuid={NOBODY}"),
                format!("--regid={NOBODY}"),
                "--clear-groups".to_owned(),
            ],
            false => Vec::new(),
        };
        let args = args.iter().map(|arg| (*arg).to_owned());
        user.into_iter().chain([program]).chain(args).collect()
    }

    fn create(&self) {
        fs::create_dir(&self.data).unwrap();
        fs::set_permissions(&self.data, fs::Permissions::from_mode(0o700)).unwrap();
        if is_root() {
            for dir in [&self.data, self.beside.path()] {
                std::os::unix::fs::chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let data = self.data.to_str().unwrap();
        let args = [
            "-A",
            "trust",
            "-U",
            "tester",
            "--no-locale",
            "-E",
            "UTF8",
            "--wal-segsize=1",
            "--no-instructions",
            "-D",
            data,
        ];
        let all = self.by_its_user("initdb", &args);
        let rest: Vec<&str> = all[1..].iter().map(|arg| &arg[..]).collect();
        said(&all[0], &rest);
        let config = self.data.join("postgresql.conf");
        let mut text = fs::read_to_string(&config).unwrap();
        write!(
            text,
            "\nlisten_addresses = ''\nunix_socket_directories = '{}'\nfsync = on\nsynchronous_commit = on\n\
             full_page_writes = on\ndynamic_shared_memory_type = mmap\nshared_buffers = 4MB\nmin_wal_size = 2MB\nmax_wal_size = 8MB\n",
            self.socket()
        )
        .unwrap();
        fs::write(config, text).unwrap();
    }

    fn start(&mut self) {
        let data = self.data.to_str().unwrap().to_owned();
        let all = self.by_its_user("postgres", &["-D", &data]);
        let log = File::options()
            .append(true)
            .create(true)
            .open(self.beside.path().join("log"))
            .unwrap();
        let server = Command::new(&all[0])
            .args(&all[1..])
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .process_group(0)
            .spawn();
        self.server = Some(server.unwrap());
        let ready = self.program("pg_isready");
        let began = Instant::now();
        while !within(&ready, &["-q", "-U", "tester", "-h", self.socket()])
            .status
            .success()
        {
            assert!(began.elapsed() < Duration::from_secs(60), "{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> String {
        fs::read_to_string(self.beside.path().join("log")).unwrap_or_default()
    }

    fn psql(&self) -> Command {
        let mut command = Command::new(self.program("psql"));
        let args = [
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
            "-U",
            "tester",
            "-d",
            "postgres",
        ];
        command.args(args).args(["-h", self.socket()]);
        command
    }

    fn query(&self, sql: &str) -> String {
        let done = self.psql().args(["-c", sql]).output().unwrap();
        let (out, err) = texts(&done);
        assert!(done.status.success(), "{sql}: {err}\n{}", self.log());
        out.trim().to_owned()
    }

    /// Ends it in order (SIGINT), or all its processes at once.
    fn end(&mut self, signal: Signal) {
        if let Some(mut server) = self.server.take() {
            let pid = Pid::from_child(&server);
            let _ = match signal {
                Signal::KILL => kill_process_group(pid, signal),
                _ => kill_process(pid, signal),
            };
            server.wait().unwrap();
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        self.end(Signal::KILL);
    }
}

/// Transactions of one client, like those of pgbench: a balance changes, and the history says so.
fn transactions(client: u64, from: u64) -> String {
    let mut sql = String::new();
    for n in from..from + 50_000 {
        let (account, delta) = ((n * 31 + client * 7) % 500, n % 100);
        writeln!(
            sql,
            "begin; update accounts set balance = balance + {delta} where id = {account}; \
             insert into history values ({client}, {n}, {delta}, repeat('x', {})); commit;\n\\echo {n}",
            n % 300
        )
        .unwrap();
    }
    sql
}

#[test]
fn postgresql_keeps_what_it_has_acknowledged() {
    const CLIENTS: u64 = 4;
    let Some(bed) = Bed::sized(&["-b", "4096"], "256M") else {
        return;
    };
    let Some(mut postgres) = Postgres::find(&bed) else {
        return;
    };
    bed.open_to_all();
    bed.mount(&[]);
    postgres.create();
    postgres.start();
    postgres.query(
        "create table accounts (id int primary key, balance bigint not null); \
         insert into accounts select n, 0 from generate_series(0, 499) n; \
         create table history (client int, n int, delta int, filler text, primary key (client, n));",
    );
    let mut last = [0; CLIENTS as usize];
    for round in 0..2 {
        let clients: Vec<Client> = (0..CLIENTS)
            .map(|client| {
                let script = postgres.beside.path().join(format!("{client}.sql"));
                fs::write(&script, transactions(client, last[client as usize] + 1)).unwrap();
                Client::start(postgres.psql().args(["-f", "-"]), &script)
            })
            .collect();
        until("transactions are under way", || {
            let enough = |(n, client): (usize, &Client)| client.acknowledged() >= last[n] + 150;
            clients.iter().enumerate().all(enough)
        });
        // All data files are synced while the mount is killed.
        let mut checkpoint = postgres.psql();
        let checkpoint = checkpoint.args(["-c", "checkpoint"]).stderr(Stdio::null());
        let mut checkpoint = checkpoint.spawn().unwrap();
        std::thread::sleep(Duration::from_millis(20 * round));
        let acknowledged: Vec<u64> = clients.iter().map(Client::acknowledged).collect();
        kill(&bed);
        postgres.end(Signal::KILL);
        drop(clients);
        checkpoint.wait().unwrap();
        bed.mount(&[]);
        postgres.start();
        for (client, acknowledged) in acknowledged.iter().enumerate() {
            let sql = format!("select count(*), max(n) from history where client = {client}");
            let there = postgres.query(&sql);
            let (count, most) = there.split_once('|').unwrap();
            assert_eq!(count, most, "client {client} has a gap");
            last[client] = most.parse().unwrap();
            assert!(
                last[client] >= *acknowledged,
                "client {client}: {acknowledged} were acknowledged, {most} are there\n{}",
                postgres.log()
            );
        }
        let sums = "select (select sum(balance) from accounts) = (select sum(delta) from history)";
        assert_eq!(postgres.query(sums), "t");
    }
    for sql in ["vacuum full", "reindex database postgres", "checkpoint"] {
        postgres.query(sql);
    }
    postgres.end(Signal::INT);
    bed.end();
}

/// With `synchronous=full` the removal of the rollback journal, which commits, may be lost: SQLite syncs the directory with `extra` only.
#[test]
fn sqlite_keeps_what_it_has_acknowledged() {
    let Some(bed) = Bed::new(&[]) else { return };
    if !has("sqlite3") {
        return;
    }
    let beside = scratch();
    for mode in ["delete", "wal"] {
        bed.mount(&[]);
        let path = bed.path(&format!("{mode}.db"));
        let mut sql = format!(
            "pragma journal_mode={mode};\npragma synchronous=extra;\n\
             create table t (n integer primary key, b text);\nselect 0;\n"
        );
        for n in 1..50_000 {
            writeln!(
                sql,
                "insert into t values ({n}, hex(zeroblob({})));\nselect {n};",
                n % 900
            )
            .unwrap();
        }
        let script = beside.path().join(mode);
        fs::write(&script, sql).unwrap();
        let mut command = Command::new("stdbuf");
        command.args(["-oL", "sqlite3", "-bail", path.to_str().unwrap()]);
        let client = Client::start(&mut command, &script);
        until("transactions are under way", || client.acknowledged() > 300);
        let acknowledged = client.acknowledged();
        kill(&bed);
        drop(client);
        bed.mount(&[]);
        let ask = "pragma integrity_check; select count(*) = max(n), max(n) from t";
        let there = said("sqlite3", &[path.to_str().unwrap(), ask]);
        let most: u64 = there
            .trim()
            .strip_prefix("ok\n1|")
            .unwrap_or_else(|| panic!("{mode}: {there}"))
            .parse()
            .unwrap();
        assert!(
            most >= acknowledged,
            "{mode}: {acknowledged} were acknowledged, {most} are there"
        );
        bed.unmount();
        bed.check();
    }
}
