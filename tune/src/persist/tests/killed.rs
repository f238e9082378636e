//! Files are written and removed by a child that is killed at each of its system calls in turn.

use std::process::Command;

use super::*;

const CHILD: &str = "LINERATE_TEST_PERSIST";

/// The child of the tests below: runs the command in [`CHILD`], and is killed on the way.
#[test]
fn in_a_child() {
    let Ok(told) = std::env::var(CHILD) else { return };
    let (what, directory) = told.split_once(' ').expect("what, and where");
    let root = Path::new(directory).join("root");
    let mut writer = StateStore::at(Path::new(directory).join("state")).lock().expect("locked");
    match what {
        "first" => first().write(&mut writer, &root).map(drop).expect("written"),
        "second" => second().write(&mut writer, &root).map(drop).expect("written"),
        _ => unpersist(&mut writer).map(drop).expect("removed"),
    }
}

/// Runs the child and kills it at this system call. Returns whether it finished; `None` without
/// strace.
fn killed_at(call: u32, what: &str, root: &Root) -> Option<bool> {
    let changing = "mkdir,mkdirat,fchmod,fsync,fdatasync,renameat,renameat2,symlinkat,linkat,unlink,unlinkat,write,pwrite64,ftruncate";
    let inject = format!("inject={changing}:signal=KILL:when={call}");
    let directory = root.root.parent().expect("a directory");
    let output = Command::new("strace")
        .args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("trace={changing}"), "-e", &inject, "--"])
        .arg(std::env::current_exe().expect("this test"))
        .args(["--exact", "persist::tests::killed::in_a_child", "--test-threads=1"])
        .env(CHILD, format!("{what} {}", directory.display()))
        .output()
        .ok()?;
    Some(output.status.success())
}

/// Kills the child at each system call in turn, and checks the result with `look`.
fn kill_everywhere(test: &str, what: &str, prepare: impl Fn(&Root), look: impl Fn(&Root)) {
    for call in 1.. {
        let root = Root::new();
        prepare(&root);
        let Some(ended) = killed_at(call, what, &root) else {
            linerate_testkit::skip(test, "strace is not installed");
            return;
        };
        look(&root);
        if ended {
            assert!(call > 10, "killed at {call} calls only");
            return;
        }
    }
}

#[test]
fn killed_at_any_call_of_writing_all_of_it_is_removed() {
    let before = |root: &Root| {
        // Relative paths, because each root has another path.
        let bare = root
            .tree()
            .into_iter()
            .map(|(path, content)| (path.strip_prefix(&root.root).expect("below").to_owned(), content));
        bare.collect::<BTreeMap<_, _>>()
    };
    let untouched = before(&Root::new());
    let test = "killed_at_any_call_of_writing_all_of_it_is_removed";
    kill_everywhere(
        test,
        "first",
        |_| {},
        |root| {
            root.unpersist().expect("removed");
            assert_eq!(before(root), untouched);
        },
    );
    let prepare = |root: &Root| drop(root.write(&first()).expect("written"));
    kill_everywhere(test, "second", prepare, |root| {
        root.unpersist().expect("removed");
        assert_eq!(before(root), untouched);
    });
    kill_everywhere(test, "unpersist", prepare, |root| {
        root.unpersist().expect("removed");
        assert_eq!(before(root), untouched);
    });
}

#[test]
fn killed_at_any_call_of_writing_it_is_finished_by_writing_again() {
    let test = "killed_at_any_call_of_writing_it_is_finished_by_writing_again";
    kill_everywhere(
        test,
        "second",
        |root| drop(root.write(&first()).expect("written")),
        |root| {
            let wrote = root.write(&second()).expect("written");
            assert_eq!(wrote.kept, Vec::<String>::new());
            assert_written(root, &second());
        },
    );
}
