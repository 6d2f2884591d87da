//! The one-shot token becomes a certificate for a key made on this machine.

use protocol::latest::{Authority, Claim, ClaimReply, paths};

use super::backoff::Backoff;
use super::console::Console;
use crate::api::{Api, ApiError, Identity};
use crate::deploy::keys::CertificateKey;

/// What a successful claim gives.
#[derive(Debug)]
pub struct Claimed {
    /// A client that speaks as this machine.
    pub api: Api,
    /// The server's answer.
    pub reply: ClaimReply,
}

/// Claims until the server answers. The same key is sent each time, so that an answer lost on the way is no second
/// claim.
///
/// # Errors
/// The server's refusal, or certificates that cannot be used.
pub async fn claim(authority: &Authority, token: &str, boot_mac: &str, console: &Console) -> Result<Claimed, ApiError> {
    let key = CertificateKey::generate().map_err(|error| ApiError::Tls(error.to_string()))?;
    let anonymous = Api::new(&authority.agent_url, &authority.ca_certificate, None)?;
    let claim = Claim {
        token: token.to_owned(),
        boot_mac: boot_mac.to_owned(),
        certificate_request: key.request.clone(),
        agent_version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let mut backoff = Backoff::default();
    let reply: ClaimReply = loop {
        match anonymous.post(paths::CLAIM, &claim).await {
            Ok(reply) => break reply,
            Err(error) if error.is_temporary() => {
                let pause = backoff.pause();
                let chain = crate::deploy::chain(&error);
                console.say(format!("claim: {chain}; trying again in {} s", pause.as_secs()));
                tokio::time::sleep(pause).await;
            }
            Err(error) => return Err(error),
        }
    };
    let identity = Identity {
        certificate: reply.certificate.clone(),
        key: key.key,
    };
    let api = Api::new(&authority.agent_url, &authority.ca_certificate, Some(&identity))?;
    Ok(Claimed { api, reply })
}
