//! Whose signatures count, as the server says from time to time, and a baseline that is not taken for them.

use std::time::Duration;

use protocol::latest::{Baseline, HeartbeatReply, ImageTrust, paths};

use super::{Contact, TalkError, chain};
use crate::baseline::Keys;

impl Contact {
    /// Fetches the baseline. One that is refused is tried once more by the keys that count now, which may be others than
    /// those that were told last.
    pub(super) async fn take_baseline(&mut self) -> Result<(), TalkError> {
        let mut result = self.fetch_baseline().await;
        if is_refusal(&result) && self.ask_keys().await {
            result = self.fetch_baseline().await;
        }
        if result.is_ok() {
            self.refused = None;
        }
        result
    }

    /// A baseline that is not taken is told, so that people see why; and what the server says to do about it is done.
    pub(super) async fn tell_refusal(&mut self, error: TalkError) -> Result<Duration, TalkError> {
        if let TalkError::Baseline(refusal) = &error
            && refusal.is_refusal()
        {
            self.refused = Some(chain(refusal));
            let reply = self.send_heartbeat().await?;
            if let Some(order) = &reply.restart {
                self.restart(order).await?;
            }
            self.learn_trust(&reply).await;
        }
        Err(error)
    }

    /// Asks what signatures are worth, when that has another name than what was told last. Nothing hangs on the answer
    /// coming at once: the next heartbeat asks again.
    pub(super) async fn learn_trust(&mut self, reply: &HeartbeatReply) {
        let Some(name) = reply.trust else { return };
        if self.trust.as_ref().is_some_and(|(held, _)| *held == name) {
            return;
        }
        match self.api.get::<ImageTrust>(paths::TRUST).await {
            Ok(trust) if take_keys(&mut self.keys, &trust) => {
                if let Some(revoked) = &trust.revoked_image {
                    tracing::warn!(
                        image.digest = %revoked.image,
                        reason = revoked.reason,
                        "the image of this node must not be used any more"
                    );
                }
                self.state.keep_trust(name, &trust);
                self.trust = Some((name, trust));
            }
            Ok(_) => {}
            Err(error) => tracing::info!(error = chain(&error), "what signatures are worth is not known yet"),
        }
    }

    /// Asks which keys count; whether they are others than those that are held.
    async fn ask_keys(&mut self) -> bool {
        let Ok(trust) = self.api.get::<ImageTrust>(paths::TRUST).await else {
            return false;
        };
        let before = self.keys.image.clone();
        take_keys(&mut self.keys, &trust) && self.keys.image != before
    }

    /// Why nothing of this baseline may be put back.
    pub(super) fn against(&self, baseline: &Baseline) -> Option<String> {
        let (_, trust) = self.trust.as_ref()?;
        let layers = [baseline.image, baseline.agent_layer];
        let (layer, reason) = layers.iter().find_map(|layer| Some((layer, trust.against(*layer)?)))?;
        Some(format!("image {} must not be used: {reason}", layer.short()))
    }
}

fn is_refusal(result: &Result<(), TalkError>) -> bool {
    matches!(result, Err(TalkError::Baseline(error)) if error.is_refusal())
}

/// Takes the keys whose signatures of images count; one that cannot be read leaves those that are held.
pub(in crate::service) fn take_keys(keys: &mut Keys, trust: &ImageTrust) -> bool {
    match trust.keys() {
        Ok(image) => {
            keys.image = image;
            true
        }
        Err(error) => {
            tracing::warn!(error = chain(&error), "the server's keys of images are none");
            false
        }
    }
}
