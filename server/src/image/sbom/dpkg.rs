//! Components from dpkg's `status`.

use manifest::Package;

use super::paragraphs::paragraphs;
use super::{Component, Distribution, Supplier};

/// The packages that are installed and in order. `license` gives a package's license expression, by its name.
pub fn components(
    status: &str,
    distribution: &Distribution,
    mut license: impl FnMut(&str) -> Option<String>,
) -> Vec<Component> {
    let mut found = Vec::new();
    for paragraph in paragraphs(status) {
        if paragraph.first("Status") != Some("install ok installed") {
            continue;
        }
        let field = |name| paragraph.first(name).map(str::to_owned);
        let (Some(name), Some(architecture), Some(version)) =
            (field("Package"), field("Architecture"), field("Version"))
        else {
            continue;
        };
        let package = Package {
            name,
            architecture,
            version,
        };
        let mut component = Component::of_deb(&package, distribution);
        component.source = Some(source(paragraph.first("Source"), &package));
        component.supplier = paragraph.first("Maintainer").map(supplier);
        component.license = license(&package.name);
        found.push(component);
    }
    found
}

/// `Source: glibc (2.36-9)`: the version is there where it differs, and without the field both are the package's own.
fn source(field: Option<&str>, package: &Package) -> (String, String) {
    match field.map(|field| field.split_once(" (").unwrap_or((field, ""))) {
        None => (package.name.clone(), package.version.clone()),
        Some((name, "")) => (name.to_owned(), package.version.clone()),
        Some((name, version)) => (name.to_owned(), version.trim_end_matches(')').to_owned()),
    }
}

/// `Name <address>`; some write the address of a page there, which is none that mail reaches.
fn supplier(maintainer: &str) -> Supplier {
    let (name, address) = maintainer.rsplit_once('<').unwrap_or((maintainer, ""));
    let address = address.trim_end_matches('>').trim();
    let is_mail = address.contains('@') && !address.contains(|c: char| c.is_whitespace() || c == '/');
    Supplier {
        name: name.trim().trim_matches('"').to_owned(),
        email: is_mail.then(|| address.to_owned()),
    }
}
