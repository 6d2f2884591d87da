use super::*;

const MINIMAL: &str = "kind: os\nname: x\ndistribution: {suite: bookworm, components: [main]}\n\
    kernel: {package: linux-image-amd64, command_line: quiet}\npackages: [systemd]\nclasses: []\n";

/// Recipes by name, in a folder of images.
fn images(recipes: &[(&str, &str)]) -> tempfile::TempDir {
    let images = tempfile::tempdir().unwrap();
    for (name, text) in recipes {
        std::fs::create_dir(images.path().join(name)).unwrap();
        std::fs::write(images.path().join(name).join(RECIPE_FILE), text).unwrap();
    }
    images
}

fn load(images: &tempfile::TempDir, name: &str) -> Result<OsRecipe, String> {
    match Recipe::load(&images.path().join(name)) {
        Ok(Recipe::Os(recipe)) => Ok(*recipe),
        Ok(Recipe::Deployer(..)) => panic!("expected an os recipe"),
        Err(error) => Err(error.to_string()),
    }
}

fn one(text: &str) -> Result<OsRecipe, String> {
    load(&images(&[("x", text)]), "x")
}

fn texts<T: ToString>(words: &[T]) -> Vec<String> {
    words.iter().map(ToString::to_string).collect()
}

#[test]
fn every_recipe_in_the_repository_loads() {
    let images = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images");
    let mut names = Vec::new();
    for folder in std::fs::read_dir(images).unwrap() {
        let folder = folder.unwrap();
        if folder.file_name() == "common" {
            let error = Recipe::load(&folder.path()).unwrap_err().to_string();
            assert!(error.contains("distribution: expected here or in a recipe"), "{error}");
        } else if folder.path().join(RECIPE_FILE).exists() {
            let recipe = Recipe::load(&folder.path()).unwrap();
            assert_eq!(
                folder.file_name().to_str().unwrap(),
                recipe.name(),
                "the folder is named as the image"
            );
            names.push(recipe.name().to_owned());
        }
    }
    names.sort();
    let expected = [
        "debian-12-base",
        "debian-12-gpu",
        "debian-12-lab",
        "debian-12-node",
        "debian-13-node",
        "deployer",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_recipe_without_roots_has_the_usual_two() {
    let recipe = one(MINIMAL).unwrap();
    let mounts: Vec<_> = recipe.roots.iter().map(|root| root.mount.to_string()).collect();
    assert_eq!(mounts, ["/", "/boot/efi"]);
}

#[test]
fn rules_of_a_recipe_win_over_those_of_a_list() {
    let text = MINIMAL.replace(
        "classes: []",
        "class_lists: [systemd]\nclasses: [{path: /etc/resolv.conf, class: rendered}]",
    );
    let recipe = one(&text).unwrap();
    let rule = |path: &str| recipe.classes.rule_of(&path.parse().unwrap()).unwrap().clone();
    let resolv_conf = rule("/etc/resolv.conf");
    assert_eq!(
        (resolv_conf.class, resolv_conf.or_file),
        (manifest::PathClass::Rendered, false)
    );
    assert_eq!(rule("/var/log/wtmp").class, manifest::PathClass::Volatile);
}

#[test]
fn a_recipe_lies_on_top_of_the_one_it_extends() {
    let base = MINIMAL
        .replace("name: x", "name: base")
        .replace("[systemd]", "[systemd, chrony, nano]")
        + "sysctls: {kernel.dmesg_restrict: \"1\", vm.swappiness: \"10\"}\n\
           units: {enable: [ssh.service, chrony.service], mask: [apt-daily.timer]}\n\
           users: [{name: ops, uid: 1000}]\n";
    let top = "kind: os\nname: gpu\nextends: base\npackages: [slurmd]\npackages_without: [nano]\n\
        kernel: {package: linux-image-cloud-amd64}\n\
        sysctls: {vm.swappiness: \"1\"}\nunits: {mask: [chrony.service]}\n\
        classes: [{path: /var/spool/slurmd/**, class: volatile}]\n\
        users: [{name: ops, uid: 2000}]\n";
    let images = images(&[("base", &base), ("gpu", top)]);
    let recipe = load(&images, "gpu").unwrap();
    assert_eq!(recipe.name.as_str(), "gpu");
    let Base::Packages(base) = &recipe.base else {
        panic!("{:?}", recipe.base)
    };
    assert_eq!(texts(&base.packages), ["systemd", "chrony", "slurmd"]);
    assert_eq!(base.kernel.as_str(), "linux-image-cloud-amd64");
    assert_eq!(recipe.command_line.as_ref().map(Line::as_str), Some("quiet"));
    let sysctls: Vec<_> = recipe
        .sysctls
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    assert_eq!(sysctls, ["kernel.dmesg_restrict=1", "vm.swappiness=1"]);
    assert_eq!(texts(&recipe.units.enable), ["ssh.service"]);
    assert_eq!(texts(&recipe.units.mask), ["apt-daily.timer", "chrony.service"]);
    assert_eq!(recipe.users.iter().map(|user| user.uid).collect::<Vec<_>>(), [2000]);
    let files: Vec<_> = recipe.files_folders().collect();
    assert_eq!(
        files,
        [images.path().join("base/files"), images.path().join("gpu/files")]
    );
    assert_eq!(recipe.classes.0.len(), 1);
}

const WAIVER: &str = "{rule: SSH-07, reason: notebooks, approver: hpc-team, expires_at: 2099-12-31}";

/// A profile in the folder beside the recipes, with two rules.
fn profile_beside(images: &tempfile::TempDir) {
    let folder = images.path().join("profiles");
    std::fs::create_dir(&folder).unwrap();
    let rules = "title: T\nrules:\n- &rule {id: SSH-07, title: t, rationale: r, severity: low, \
        checks: [{sshd: {key: X11Forwarding, expect: {is: [no]}}}], unfixed: report_only}\n- {<<: *rule, id: SSH-08}\n";
    std::fs::write(folder.join("strict.yaml"), rules.replace("[no]", "[\"no\"]")).unwrap();
}

#[test]
fn hardening_is_a_profile_and_the_newest_waiver_of_each_rule() {
    let base =
        MINIMAL.replace("name: x", "name: base") + &format!("hardening: {{profile: strict, waivers: [{WAIVER}]}}\n");
    let top = format!(
        "kind: os\nname: gpu\nextends: base\nhardening: {{waivers: [{}]}}\n",
        WAIVER.replace("notebooks", "dashboards")
    );
    let images = images(&[("base", &base), ("gpu", &top)]);
    profile_beside(&images);
    let hardening = load(&images, "gpu").unwrap().hardening.unwrap();
    assert_eq!(
        (hardening.profile.name.as_str(), hardening.profile.rules.len()),
        ("strict", 2)
    );
    let reasons: Vec<_> = hardening.waivers.iter().map(|waiver| waiver.reason.as_str()).collect();
    assert_eq!(reasons, ["dashboards"]);
    assert!(load(&images, "base").unwrap().hardening.is_some());
    assert!(one(MINIMAL).unwrap().hardening.is_none());
}

#[test]
fn hardening_that_cannot_be_is_told_before_anything_is_built() {
    for (hardening, expected) in [
        ("{profile: lax}".to_owned(), "profiles/lax.yaml".to_owned()),
        (
            format!("{{profile: strict, waivers: [{}]}}", WAIVER.replace("SSH-07", "SSH-99")),
            "hardening.waivers: waiver for SSH-99, which profile strict does not check".to_owned(),
        ),
        (
            format!("{{profile: strict, waivers: [{}]}}", WAIVER.replace("hpc-team", "' '")),
            "needs a reason and an approver".to_owned(),
        ),
        (
            format!("{{waivers: [{WAIVER}]}}"),
            "hardening: waivers belong to a profile".to_owned(),
        ),
        (
            format!(
                "{{profile: strict, waivers: [{}]}}",
                WAIVER.replace("2099-12-31", "soon")
            ),
            "expected one like 2027-01-31".to_owned(),
        ),
    ] {
        let images = images(&[("x", &format!("{MINIMAL}hardening: {hardening}\n"))]);
        profile_beside(&images);
        let error = load(&images, "x").unwrap_err();
        assert!(error.contains(&expected), "{error} should say {expected}");
    }
}

#[test]
fn a_chain_of_recipes_has_an_end() {
    let circle = images(&[
        ("a", "kind: os\nname: a\nextends: b\n"),
        ("b", "kind: os\nname: b\nextends: a\n"),
    ]);
    let error = load(&circle, "a").unwrap_err();
    assert!(error.contains("cannot be under itself"), "{error}");
    let nothing = images(&[("a", "kind: os\nname: a\nextends: gone\n")]);
    let error = load(&nothing, "a").unwrap_err();
    assert!(
        error.contains("extends: \"gone\": expected") && error.ends_with("gone/image.yaml"),
        "{error}"
    );
    let alone = images(&[("a", "kind: os\nname: a\npackages: [systemd]\n")]);
    let error = load(&alone, "a").unwrap_err();
    assert!(error.contains("distribution: expected here or in a recipe"), "{error}");
}

#[test]
fn a_root_from_elsewhere_takes_the_place_of_packages() {
    let text = |base: &str| format!("kind: os\nname: x\nbase: {base}\nkernel: {{command_line: quiet}}\n");
    let images = images(&[("x", &text("{path: rootfs.tar.zst}"))]);
    let recipe = load(&images, "x").unwrap();
    let Base::Imported(ImportedBase::Path { path, tag: None }) = &recipe.base else {
        panic!("{:?}", recipe.base)
    };
    assert_eq!(*path, images.path().join("x/rootfs.tar.zst"));
    assert_eq!(recipe.command_line.as_ref().map(Line::as_str), Some("quiet"));
    let recipe = one(&text(
        "{registry: 'r.example/gpu:1', credentials: /etc/r, plain_http: true}",
    ))
    .unwrap();
    assert!(matches!(
        recipe.base,
        Base::Imported(ImportedBase::Registry { plain_http: true, .. })
    ));
    for (text, expected) in [
        (text("{}"), "base: expected path or registry"),
        (text("{path: a, registry: b}"), "base: expected path or registry"),
        (text("{path: a, plain_http: true}"), "belong to registry"),
        (text("{registry: a, credentials: b}"), "expected an absolute path"),
        (text("{registry: a, tag: b}"), "the tag belongs into"),
        (
            text("{path: a}") + "packages: [nano]\n",
            "packages: a root from elsewhere is taken as it is",
        ),
        (
            text("{path: a}") + "distribution: {suite: bookworm, components: [main]}\n",
            "expected base or distribution",
        ),
        (
            text("{path: a}").replace("command_line: quiet", "package: l"),
            "kernel.package: a root",
        ),
        (
            MINIMAL.replace("package: linux-image-amd64, ", ""),
            "kernel.package: expected here",
        ),
    ] {
        let error = one(&text).unwrap_err();
        assert!(error.contains(expected), "{error} should say {expected}");
    }
}

#[test]
fn files_beside_a_recipe_are_there_before_anything_is_built() {
    let text = format!("{MINIMAL}hooks: [hooks/last.sh]\n");
    let images = images(&[("x", &text)]);
    let error = load(&images, "x").unwrap_err();
    assert!(error.contains("hooks: expected a file at"), "{error}");
    std::fs::create_dir(images.path().join("x/hooks")).unwrap();
    std::fs::write(images.path().join("x/hooks/last.sh"), "#!/bin/sh\n").unwrap();
    let recipe = load(&images, "x").unwrap();
    assert_eq!((recipe.hooks.len(), recipe.hook_secs_max), (1, 600));
}

#[test]
fn mistakes_are_named_with_their_place() {
    for (change, place, expected) in [
        (MINIMAL.replace("packages:", "package:"), ":5:1: ", "expected one of"),
        (
            format!("{MINIMAL}modes: [{{path: /etc/x, mode: 600}}]\n"),
            ":7:30: ",
            "octal",
        ),
        (format!("{MINIMAL}remove: [var/log]\n"), ":7:10: ", "absolute"),
        (MINIMAL.replace("name: x", "name: X"), ":2:7: ", "\"X\": expected"),
        (MINIMAL.replace("[systemd]", "['--hook=x']"), ":5:12: ", "\"--hook=x\""),
        (MINIMAL.replace("[main]", "[]"), ":3:45: ", "at least one component"),
        (
            MINIMAL.replace("kind: os", "kind: overlay"),
            ": kind: ",
            "expected os or deployer",
        ),
        (MINIMAL.replace("kind: os", "kind: image"), ":1:7: ", "image"),
        (format!("{MINIMAL}units: {{mask: [apt-daily]}}\n"), ":7:16: ", "suffix"),
        (
            format!("{MINIMAL}class_lists: [sysv]\n"),
            ": class_lists: ",
            "\"sysv\": expected one of systemd",
        ),
        (
            format!("{MINIMAL}sysctls: {{kernel.x: \"1\\n2\"}}\n"),
            ":7:21: ",
            "plain value",
        ),
        (
            format!("{MINIMAL}hooks: [../../etc/rc]\n"),
            ":7:9: ",
            "beside the recipe",
        ),
        (format!("{MINIMAL}hook_secs_max: 0\n"), ":7:16: ", "expected 1 to 86400"),
        (
            MINIMAL.replace("[main]}", "[main], keyring: k.asc}"),
            ": distribution: ",
            "expected mirror, too",
        ),
        (
            format!("{MINIMAL}packages_without: [emacs]\n"),
            ": packages_without: ",
            "no recipe under this one",
        ),
    ] {
        let error = one(&change).unwrap_err();
        assert!(
            error.contains(&format!("image.yaml{place}")),
            "{error} should be at {place}"
        );
        assert!(error.contains(expected), "{error} should say {expected}");
    }
}

/// The schema that editors use stands beside the recipes; `UPDATE_GOLDEN=1` writes it.
#[test]
fn the_schema_beside_the_recipes_is_theirs() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../images/recipe.schema.json");
    let text = serde_json::to_string_pretty(&recipe_schema()).unwrap() + "\n";
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == text,
        "images/recipe.schema.json is out of date: UPDATE_GOLDEN=1 writes it"
    );
    for key in ["extends", "apt_sources", "packages_without", "class_lists", "programs"] {
        assert!(text.contains(&format!("\"{key}\"")), "{key}");
    }
}
