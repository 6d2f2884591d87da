//! SPDX 2.3 in JSON (the successor of ISO/IEC 5962:2021).

use std::collections::BTreeSet;

use manifest::ManifestKind;
use serde::Serialize;

use super::copyright::REFERENCE;
use super::{Bill, Component, Supplier};

/// Where nothing is said.
const NOTHING: &str = "NOASSERTION";
const DOCUMENT: &str = "SPDXRef-DOCUMENT";
const IMAGE: &str = "SPDXRef-Image";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    spdx_version: &'static str,
    data_license: &'static str,
    #[serde(rename = "SPDXID")]
    id: &'static str,
    name: String,
    document_namespace: String,
    creation_info: CreationInfo,
    document_describes: [&'static str; 1],
    packages: Vec<Package<'a>>,
    relationships: Vec<Relationship>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    has_extracted_licensing_infos: Vec<Extracted>,
}

#[derive(Serialize)]
struct CreationInfo {
    created: String,
    /// Without a version: the same image has the same bill, whichever version wrote it.
    creators: [&'static str; 1],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Package<'a> {
    #[serde(rename = "SPDXID")]
    id: String,
    name: &'a str,
    version_info: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    supplier: Option<String>,
    download_location: &'static str,
    files_analyzed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    checksums: Option<[Checksum; 1]>,
    license_concluded: &'static str,
    license_declared: &'a str,
    copyright_text: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_info: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    external_refs: Option<[External<'a>; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    primary_package_purpose: Option<&'static str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Checksum {
    algorithm: &'static str,
    checksum_value: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct External<'a> {
    reference_category: &'static str,
    reference_type: &'static str,
    reference_locator: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Relationship {
    spdx_element_id: &'static str,
    relationship_type: &'static str,
    related_spdx_element: String,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Extracted {
    license_id: String,
    extracted_text: String,
    name: String,
}

/// The bill as a document.
pub(super) fn document(bill: &Bill) -> Document<'_> {
    let ids: Vec<String> = bill
        .components
        .iter()
        .enumerate()
        .map(|(at, one)| id(at, one))
        .collect();
    let contains = ids.iter().map(|id| Relationship {
        spdx_element_id: IMAGE,
        relationship_type: "CONTAINS",
        related_spdx_element: id.clone(),
    });
    let describes = Relationship {
        spdx_element_id: DOCUMENT,
        relationship_type: "DESCRIBES",
        related_spdx_element: IMAGE.to_owned(),
    };
    let relationships = [describes].into_iter().chain(contains).collect();
    let packages = bill
        .components
        .iter()
        .zip(&ids)
        .map(|(one, id)| package(one, id.clone()));
    Document {
        spdx_version: "SPDX-2.3",
        data_license: "CC0-1.0",
        id: DOCUMENT,
        name: format!("{}@{}", bill.name, bill.version),
        document_namespace: format!("https://spdx.org/spdxdocs/plumbline-{}-{}", bill.name, bill.digest),
        creation_info: CreationInfo {
            created: bill.instant(),
            creators: ["Tool: plumbline"],
        },
        document_describes: [IMAGE],
        packages: [image(bill)].into_iter().chain(packages).collect(),
        relationships,
        has_extracted_licensing_infos: extracted(bill),
    }
}

/// Only letters, digits, '.' and '-' may be in one; the number keeps `libstdc++` and `libstdc--` apart.
fn id(at: usize, component: &Component) -> String {
    let name: String = component
        .name
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' })
        .collect();
    format!("SPDXRef-Package-{}-{name}", at + 1)
}

fn image(bill: &Bill) -> Package<'_> {
    Package {
        id: IMAGE.to_owned(),
        name: &bill.name,
        version_info: &bill.version,
        supplier: None,
        download_location: NOTHING,
        files_analyzed: false,
        checksums: Some([Checksum {
            algorithm: "SHA256",
            checksum_value: bill.digest.to_string(),
        }]),
        license_concluded: NOTHING,
        license_declared: NOTHING,
        copyright_text: NOTHING,
        source_info: Some("the checksum is that of the image's manifest, which names every file".to_owned()),
        description: bill.description.as_deref(),
        external_refs: None,
        primary_package_purpose: Some(match bill.kind {
            ManifestKind::Os => "OPERATING-SYSTEM",
            _ => "FIRMWARE",
        }),
    }
}

fn package(component: &Component, id: String) -> Package<'_> {
    Package {
        id,
        name: &component.name,
        version_info: &component.version,
        supplier: component.supplier.as_ref().map(organization),
        download_location: NOTHING,
        files_analyzed: false,
        checksums: None,
        license_concluded: NOTHING,
        license_declared: component.license.as_deref().unwrap_or(NOTHING),
        copyright_text: NOTHING,
        source_info: component
            .source
            .as_ref()
            .map(|(name, version)| format!("built from source package {name} {version}")),
        description: None,
        external_refs: Some([External {
            reference_category: "PACKAGE-MANAGER",
            reference_type: "purl",
            reference_locator: &component.purl,
        }]),
        primary_package_purpose: None,
    }
}

/// Whether a maintainer is a person or a group is said nowhere.
fn organization(supplier: &Supplier) -> String {
    match &supplier.email {
        Some(email) => format!("Organization: {} ({email})", supplier.name),
        None => format!("Organization: {}", supplier.name),
    }
}

/// What each reference to a license means.
fn extracted(bill: &Bill) -> Vec<Extracted> {
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-');
    let mut references = BTreeSet::new();
    let mut packages: std::collections::BTreeMap<&str, &str> = std::collections::BTreeMap::new();
    for component in &bill.components {
        let words = component
            .license
            .as_deref()
            .unwrap_or_default()
            .split(|c| !is_of_name(c));
        for word in words.filter(|word| word.starts_with(REFERENCE)) {
            references.insert(word);
            packages.entry(word).or_insert(&component.name);
        }
    }
    references
        .into_iter()
        .map(|reference| Extracted {
            license_id: reference.to_owned(),
            extracted_text: format!(
                "See /usr/share/doc/{}/copyright, which the package of that name brings.",
                packages.get(reference).copied().unwrap_or_default()
            ),
            name: reference.trim_start_matches(REFERENCE).to_owned(),
        })
        .collect()
}
