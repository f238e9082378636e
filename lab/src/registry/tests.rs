use super::*;
use serde_json::json;

fn registry() -> (tempfile::TempDir, LabRegistry) {
    let directory = tempfile::tempdir().unwrap();
    let registry = LabRegistry::at(directory.path().join("labs")).unwrap();
    (directory, registry)
}

/// Registers a lab whose process has ended.
fn register_dead_lab(registry: &LabRegistry, name: &str, host_wide: &[(&str, i32)]) -> LabState {
    let mut state = LabState::new(Some(name), HolderKind::Running).unwrap();
    state.process.start_ticks += 1;
    state.host_wide = host_wide
        .iter()
        .map(|(key, original)| HostWide { key: (*key).to_owned(), original: json!(original) })
        .collect();
    registry.write(&state).unwrap();
    state
}

fn nothing_to_restore(key: &str, _: &serde_json::Value) -> Result<(), String> {
    panic!("unexpected request to restore {key}")
}

#[test]
fn lookup_errors_list_the_labs_that_are_up() {
    let (_directory, registry) = registry();
    let error = registry.find("x").unwrap_err().to_string();
    assert_eq!(error, "no lab named x is up; none is");
    let _one = RegistryEntry::new(registry.clone(), Some("one"), HolderKind::Running).unwrap();
    let _two = RegistryEntry::new(registry.clone(), Some("two"), HolderKind::Running).unwrap();
    let error = registry.find("x").unwrap_err().to_string();
    assert!(error.starts_with("no lab named x is up; up are "), "{error}");
}

#[test]
fn clean_retries_settings_that_failed_to_restore() {
    let (_directory, registry) = registry();
    register_dead_lab(&registry, "one", &[("a", 1), ("b", 2), ("c", 3)]);
    let report = registry
        .clean(CleanScope::Dead, &mut |key, _| match key {
            "b" => Ok(()),
            _ => Err("no permission".to_owned()),
        })
        .unwrap();
    assert!(!report.is_complete());
    let mut requests = Vec::new();
    let report = registry
        .clean(CleanScope::Dead, &mut |key, original| {
            requests.push((key.to_owned(), original.clone()));
            Ok(())
        })
        .unwrap();
    assert!(report.is_complete());
    assert_eq!(requests, [("c".to_owned(), json!(3)), ("a".to_owned(), json!(1))]);
    assert!(registry.labs().unwrap().labs.is_empty());
}

#[test]
fn labs_of_an_earlier_boot_have_nothing_to_restore() {
    let (_directory, registry) = registry();
    let mut state = register_dead_lab(&registry, "one", &[("a", 1)]);
    state.boot = "another".to_owned();
    registry.write(&state).unwrap();
    let report = registry.clean(CleanScope::Dead, &mut nothing_to_restore).unwrap();
    assert!(report.is_complete());
    assert!(registry.labs().unwrap().labs.is_empty());
}

#[test]
fn dropped_labs_leave_changed_settings_for_clean() {
    let (_directory, registry) = registry();
    let entry = RegistryEntry::new(registry.clone(), None, HolderKind::Running).unwrap();
    entry.record("a", json!(1)).unwrap();
    entry.record("a", json!(9)).unwrap();
    entry.record("b", json!(2)).unwrap();
    entry.forget("b").unwrap();
    drop(entry);
    let mut requests = Vec::new();
    registry
        .clean(CleanScope::Dead, &mut |key, original| {
            requests.push((key.to_owned(), original.clone()));
            Ok(())
        })
        .unwrap();
    assert_eq!(requests, [("a".to_owned(), json!(1))]);
    assert!(registry.labs().unwrap().labs.is_empty());
}

#[test]
fn a_setting_can_be_recorded_by_one_lab_at_a_time() {
    let (_directory, registry) = registry();
    let one = RegistryEntry::new(registry.clone(), Some("one"), HolderKind::Running).unwrap();
    let two = RegistryEntry::new(registry, Some("two"), HolderKind::Running).unwrap();
    one.record("a", json!(1)).unwrap();
    let error = two.record("a", json!(0)).unwrap_err().to_string();
    assert!(error.contains("for the lab one"), "{error}");
    one.forget("a").unwrap();
    two.record("a", json!(1)).unwrap();
    two.forget("a").unwrap();
}

#[test]
fn clean_reports_and_keeps_unreadable_files() {
    let (_directory, registry) = registry();
    let path = registry.path().join("0123456789abcdef.json");
    fs::write(&path, "{\"version\":1,").unwrap();
    let report = registry.clean(CleanScope::Dead, &mut nothing_to_restore).unwrap();
    assert!(!report.is_complete());
    assert!(report.unreadable[0].contains("0123456789abcdef.json"));
    assert!(path.exists());
}

#[test]
fn clean_removes_temporary_files_of_removed_labs_only() {
    let (_directory, registry) = registry();
    let living = RegistryEntry::new(registry.clone(), Some("one"), HolderKind::Running).unwrap();
    let dead = register_dead_lab(&registry, "two", &[]);
    let temporary = |id: &str| registry.file(id).with_extension(TEMPORARY);
    let (own_file, dead_file) = (temporary(&living.state().id), temporary(&dead.id));
    for file in [&own_file, &dead_file] {
        fs::write(file, "").unwrap();
    }
    registry.clean(CleanScope::Dead, &mut nothing_to_restore).unwrap();
    assert!(own_file.exists() && !dead_file.exists());
}

#[test]
fn world_writable_and_symlinked_registries_are_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("labs");
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    assert!(matches!(LabRegistry::at(&path), Err(LabError::NotOurs { .. })));
    let link = directory.path().join("link");
    std::os::unix::fs::symlink("/", &link).unwrap();
    assert!(matches!(LabRegistry::at(&link), Err(LabError::NotOurs { .. })));
}

#[test]
fn mapped_user_returns_the_outside_uid_from_uid_map() {
    assert_eq!(mapped_user("         0       1000          1\n", 0), 1000);
    assert_eq!(mapped_user("         0          0 4294967295\n", 0), 0);
    assert_eq!(mapped_user("         0          0 4294967295\n", 1000), 1000);
    // The uid map of a container.
    assert_eq!(mapped_user("0 1000 1\n1 100000 65536\n", 0), 0,);
    assert_eq!(mapped_user("", 5), 5);
}
