//! Bills of an invented root, to the byte, and the readers they are made by.

use std::os::unix::fs::symlink;
use std::path::Path;

use testkit::golden;

use super::*;

const STATUS: &str = include_str!("testdata/status");

fn debian() -> Distribution {
    Distribution::parse("PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\nVERSION_ID=\"12\"\n")
}

fn bill() -> Bill {
    let license = |name: &str| match name {
        "bash" => Some("GPL-3.0-or-later".to_owned()),
        "libstdc++6" => Some("GFDL-1.2-or-later AND LicenseRef-GPL-3-with-GCC-exception-or-later".to_owned()),
        _ => None,
    };
    let mut header = Header::new(ManifestKind::Os, "debian-12-lab", "20260102T030405Z-0123abcd");
    header.description = Some("Debian GNU/Linux 12 (bookworm)".to_owned());
    Bill::new(
        Digest::of(b"manifest"),
        &header,
        dpkg::components(STATUS, &debian(), license),
    )
}

fn text(format: SbomFormat) -> String {
    String::from_utf8(bill().encode(format).unwrap()).unwrap()
}

#[test]
fn a_bill_in_cyclonedx_is_this() {
    golden("src/image/sbom/testdata/cyclonedx.json", &text(SbomFormat::Cyclonedx));
}

#[test]
fn a_bill_in_spdx_is_this() {
    golden("src/image/sbom/testdata/spdx.json", &text(SbomFormat::Spdx));
}

#[test]
fn dpkg_says_source_maintainer_and_what_is_installed() {
    let found = dpkg::components(STATUS, &debian(), |_| None);
    let names: Vec<_> = found.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(
        names,
        ["libstdc++6", "bash", "tzdata"],
        "what is only left over is none"
    );
    assert_eq!(
        found[0].source,
        Some(("gcc-12".to_owned(), "12.2.0-14+deb12u1".to_owned()))
    );
    assert_eq!(found[1].source, Some(("bash".to_owned(), "5.2.15-2".to_owned())));
    assert_eq!(found[2].source, Some(("tzdata".to_owned(), "1:2024a~rc1-0".to_owned())));
    let supplier = |at: usize| {
        let one = found[at].supplier.clone().unwrap();
        (one.name, one.email.unwrap_or_default())
    };
    assert_eq!(supplier(1), ("Matthias Klose".to_owned(), "doko@debian.org".to_owned()));
    assert_eq!(supplier(2), ("GNU Libc Maintainers".to_owned(), String::new()));
    let paged = STATUS.replace("GNU Libc Maintainers", "Some Firm <https://example.com/sdk/>");
    let firm = dpkg::components(&paged, &debian(), |_| None)[2]
        .supplier
        .clone()
        .unwrap();
    assert_eq!((firm.name.as_str(), firm.email), ("Some Firm", None));
    assert_eq!(
        found[0].purl,
        "pkg:deb/debian/libstdc%2B%2B6@12.2.0-14?arch=amd64&distro=debian-12"
    );
    assert_eq!(
        found[2].purl,
        "pkg:deb/debian/tzdata@1%3A2024a~rc1-0?arch=all&distro=debian-12"
    );
}

#[test]
fn an_rpm_has_its_epoch_apart() {
    let rocky = Distribution::parse("ID=\"rocky\"\nVERSION_ID=\"9.4\"\n");
    let one = Component::of_rpm("openssl", Some(1), "3.0.7-27.el9", Some("x86_64"), &rocky);
    assert_eq!(one.version, "1:3.0.7-27.el9");
    assert_eq!(
        one.purl,
        "pkg:rpm/rocky/openssl@3.0.7-27.el9?arch=x86_64&epoch=1&distro=rocky-9.4"
    );
    let none = Distribution::parse("");
    let key = Component::of_rpm("gpg-pubkey", None, "1-2", None, &none);
    assert_eq!(key.purl, "pkg:rpm/linux/gpg-pubkey@1-2?distro=linux");
}

const HEAD: &str = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\nUpstream-Name: x\n\n";

#[test]
fn licenses_become_what_spdx_calls_them() {
    let of = |license: &str| copyright::license(&format!("{HEAD}Files: *\nCopyright: x\nLicense: {license}\n text\n"));
    for (debian, spdx) in [
        ("GPL-2+", "GPL-2.0-or-later"),
        ("Expat", "MIT"),
        ("GPL-2+ or Artistic", "GPL-2.0-or-later OR Artistic-1.0-Perl"),
        ("GPL-2 or MIT and ISC", "GPL-2.0-only OR (MIT AND ISC)"),
        ("GPL-2 or MIT, and ISC", "(GPL-2.0-only OR MIT) AND ISC"),
        (
            "GPL-2+ with OpenSSL exception",
            "LicenseRef-GPL-2-with-OpenSSL-exception-or-later",
        ),
        ("public-domain", "LicenseRef-public-domain"),
        ("BSD-3-clause~Intel, Inc.", "LicenseRef-BSD-3-clause-Intel-Inc."),
        ("+++", "LicenseRef-unnamed"),
    ] {
        assert_eq!(of(debian).as_deref(), Some(spdx), "{debian}");
    }
}

#[test]
fn a_package_is_under_all_licenses_of_its_files_once_each() {
    let text = format!(
        "{HEAD}Files: *\nLicense: GPL-2+ or Artistic\n\nFiles: a\nLicense: Expat\n .\n text: with a colon\n\n\
         Files: b\nLicense: Expat\n\nLicense: ISC\n The text of a license that stands alone says nothing of files.\n"
    );
    let license = copyright::license(&text).unwrap();
    assert_eq!(license, "(GPL-2.0-or-later OR Artistic-1.0-Perl) AND MIT");
    assert_eq!(
        copyright::license("This package was debianized by somebody.\n\nLicense: GPL\n"),
        None
    );
    assert_eq!(copyright::license(HEAD), None, "no license is named");
    assert_eq!(copyright::license(""), None);
    let many: String = (0..100).map(|n| format!("Files: {n}\nLicense: L{n}\n\n")).collect();
    assert_eq!(copyright::license(&format!("{HEAD}{many}")), None, "nobody reads that");
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

#[test]
fn a_root_is_read_without_leaving_it() {
    let (tree, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let root = tree.path();
    let mit = format!("{HEAD}Files: *\nLicense: Expat\n");
    let gpl = format!("{HEAD}Files: *\nLicense: GPL-3\n");
    write(root, "var/lib/dpkg/status", STATUS);
    write(root, "usr/lib/os-release", "ID=debian\nVERSION_ID=12\n");
    write(root, "usr/share/doc/bash/copyright", &gpl);
    symlink("bash", root.join("usr/share/doc/tzdata")).unwrap();
    // This machine's file of that name, were the link followed there.
    write(outside.path(), "copyright", &mit);
    symlink(outside.path(), root.join("usr/share/doc/libstdc++6")).unwrap();

    let package = |name: &str, architecture: &str, version: &str| Package {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        version: version.to_owned(),
    };
    let packages = [
        package("bash", "amd64", "5.2.15-2+b7"),
        package("libstdc++6", "amd64", "12.2.0-14"),
        package("tzdata", "all", "1:2024a~rc1-0"),
        package("unpacked-only", "amd64", "1"),
    ];
    let found = root::components(root, &packages).unwrap();
    let licenses: Vec<_> = found.iter().map(|one| one.license.as_deref()).collect();
    assert_eq!(licenses, [Some("GPL-3.0-only"), None, Some("GPL-3.0-only"), None]);
    assert!(found[3].purl.starts_with("pkg:deb/debian/unpacked-only@1?"));
    let bill = Bill::new(Digest::of(b"x"), &Header::new(ManifestKind::Os, "x", "1"), found);
    assert_eq!(bill.components.len(), 4);
    assert_eq!(bill.instant(), "1970-01-01T00:00:00Z");
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(
        root::components(empty.path(), &packages).unwrap().len(),
        4,
        "by name alone"
    );
}
