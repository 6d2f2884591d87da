//! CycloneDX 1.6 in JSON (ECMA-424).

use serde::Serialize;

use super::{Bill, Component};
use manifest::ManifestKind;

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Document<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    bom_format: &'static str,
    spec_version: &'static str,
    serial_number: String,
    version: u32,
    metadata: Metadata<'a>,
    components: Vec<Part<'a>>,
}

#[derive(Serialize)]
struct Metadata<'a> {
    timestamp: String,
    tools: Tools,
    component: Image<'a>,
}

#[derive(Serialize)]
struct Tools {
    components: [Tool; 1],
}

/// Without a version: the same image has the same bill, whichever version wrote it.
#[derive(Serialize)]
struct Tool {
    r#type: &'static str,
    name: &'static str,
}

#[derive(Serialize)]
struct Image<'a> {
    r#type: &'static str,
    #[serde(rename = "bom-ref")]
    bom_ref: String,
    name: &'a str,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'a str>,
    hashes: [Hash; 1],
}

#[derive(Serialize)]
struct Hash {
    alg: &'static str,
    content: String,
}

#[derive(Serialize)]
struct Part<'a> {
    r#type: &'static str,
    #[serde(rename = "bom-ref")]
    bom_ref: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    supplier: Option<Supplier<'a>>,
    name: &'a str,
    version: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    licenses: Option<[License<'a>; 1]>,
    purl: &'a str,
    properties: Vec<Property<'a>>,
}

#[derive(Serialize)]
struct Supplier<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    contact: Option<[Contact<'a>; 1]>,
}

#[derive(Serialize)]
struct Contact<'a> {
    email: &'a str,
}

#[derive(Serialize)]
struct License<'a> {
    expression: &'a str,
}

#[derive(Serialize)]
struct Property<'a> {
    name: &'static str,
    value: &'a str,
}

/// The bill as a document.
pub(super) fn document(bill: &Bill) -> Document<'_> {
    Document {
        schema: "http://cyclonedx.org/schema/bom-1.6.schema.json",
        bom_format: "CycloneDX",
        spec_version: "1.6",
        serial_number: serial_number(bill),
        version: 1,
        metadata: Metadata {
            timestamp: bill.instant(),
            tools: Tools {
                components: [Tool {
                    r#type: "application",
                    name: "plumbline",
                }],
            },
            component: Image {
                r#type: match bill.kind {
                    ManifestKind::Os => "operating-system",
                    _ => "firmware",
                },
                bom_ref: format!("image:{}", bill.digest),
                name: &bill.name,
                version: &bill.version,
                description: bill.description.as_deref(),
                hashes: [Hash {
                    alg: "SHA-256",
                    content: bill.digest.to_string(),
                }],
            },
        },
        components: bill.components.iter().map(part).collect(),
    }
}

/// A UUID of the image's digest (version 8 of RFC 9562: bits that somebody else has mixed).
fn serial_number(bill: &Bill) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&bill.digest.as_bytes()[..16]);
    format!("urn:uuid:{}", uuid::Builder::from_custom_bytes(bytes).into_uuid())
}

fn part(component: &Component) -> Part<'_> {
    let mut properties = vec![Property {
        name: "plumbline:architecture",
        value: &component.architecture,
    }];
    if let Some((name, version)) = &component.source {
        properties.push(Property {
            name: "plumbline:source:name",
            value: name,
        });
        properties.push(Property {
            name: "plumbline:source:version",
            value: version,
        });
    }
    Part {
        r#type: "library",
        bom_ref: &component.purl,
        supplier: component.supplier.as_ref().map(|supplier| Supplier {
            name: &supplier.name,
            contact: supplier.email.as_deref().map(|email| [Contact { email }]),
        }),
        name: &component.name,
        version: &component.version,
        licenses: component.license.as_deref().map(|expression| [License { expression }]),
        purl: &component.purl,
        properties,
    }
}
