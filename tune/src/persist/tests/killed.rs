//! Files are written and removed by a child that is killed at each of its system calls in turn.

use std::process::Command;

use super::*;

const CHILD: &str = "LINERATE_TEST_PERSIST";

/// The child of the tests below. It runs the command in [`CHILD`] until it is killed.
#[test]
fn child_runs_the_requested_command() {
    let Ok(request) = std::env::var(CHILD) else { return };
    let (command, directory) = request.split_once(' ').expect("a command and a directory");
    let root = Path::new(directory).join("root");
    let mut writer = StateStore::at(Path::new(directory).join("state")).lock().expect("locked");
    match command {
        "first" => first().write(&mut writer, &root).map(drop).expect("written"),
        "second" => second().write(&mut writer, &root).map(drop).expect("written"),
        _ => unpersist(&mut writer).map(drop).expect("removed"),
    }
}

/// Runs the child and kills it at this system call. Returns whether it finished; `None` without
/// strace.
fn run_killed_at(call: u32, command: &str, root: &Root) -> Option<bool> {
    let changing = "mkdir,mkdirat,fchmod,fsync,fdatasync,renameat,renameat2,symlinkat,linkat,unlink,unlinkat,write,pwrite64,ftruncate";
    let inject = format!("inject={changing}:signal=KILL:when={call}");
    let directory = root.root.parent().expect("a directory");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={changing}"), "-e", &inject, "--"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "persist::tests::killed::child_runs_the_requested_command", "--test-threads=1"])
        .env(CHILD, format!("{command} {}", directory.display()))
        .output()
        .ok()?;
    Some(output.status.success())
}

/// Kills the child at each system call in turn, and checks the result with `check`.
fn kill_everywhere(test: &str, command: &str, prepare: impl Fn(&Root), check: impl Fn(&Root)) {
    for call in 1.. {
        let root = Root::new();
        prepare(&root);
        let Some(is_finished) = run_killed_at(call, command, &root) else {
            linerate_testkit::skip(test, "strace is not installed");
            return;
        };
        check(&root);
        if is_finished {
            assert!(call > 10, "killed at {call} calls only");
            return;
        }
    }
}

#[test]
fn unpersist_removes_all_files_after_a_kill_at_any_system_call() {
    let relative_tree = |root: &Root| {
        // Relative paths, because each root has another path.
        let entries = root
            .tree()
            .into_iter()
            .map(|(path, content)| (path.strip_prefix(&root.root).expect("below").to_owned(), content));
        entries.collect::<BTreeMap<_, _>>()
    };
    let original = relative_tree(&Root::new());
    let test = "unpersist_removes_all_files_after_a_kill_at_any_system_call";
    kill_everywhere(
        test,
        "first",
        |_| {},
        |root| {
            root.unpersist().expect("removed");
            assert_eq!(relative_tree(root), original);
        },
    );
    let prepare = |root: &Root| drop(root.write(&first()).expect("written"));
    kill_everywhere(test, "second", prepare, |root| {
        root.unpersist().expect("removed");
        assert_eq!(relative_tree(root), original);
    });
    kill_everywhere(test, "unpersist", prepare, |root| {
        root.unpersist().expect("removed");
        assert_eq!(relative_tree(root), original);
    });
}

#[test]
fn writing_again_finishes_after_a_kill_at_any_system_call() {
    let test = "writing_again_finishes_after_a_kill_at_any_system_call";
    kill_everywhere(
        test,
        "second",
        |root| drop(root.write(&first()).expect("written")),
        |root| {
            let report = root.write(&second()).expect("written");
            assert_eq!(report.kept, Vec::<String>::new());
            assert_written(root, &second());
        },
    );
}
