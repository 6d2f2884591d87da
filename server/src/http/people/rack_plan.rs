//! The rack plan.

use axum::Json;
use axum::extract::State;
use serde::Deserialize;

use super::extract::Body;
use super::identity::{Admin, Viewer};
use crate::app::rack_plan::{self, Imported, PlanLineView};
use crate::app::{App, AppError};
use crate::http::error::ErrorBody;

/// A file to be brought in.
#[derive(Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PlanImport {
    /// Comma-separated values. The first line names the columns: rack, unit, serial, mac, bmc_address, name, group,
    /// switch_port, in any order, and not all of them are needed.
    csv: String,
    /// Only say what it would do.
    #[serde(default)]
    dry_run: bool,
}

/// Lists the rack plan, by rack and from the top of each.
#[utoipa::path(get, path = "/rack-plan", tag = "discovery",
    responses((status = 200, body = Vec<PlanLineView>), (status = "4XX", body = ErrorBody)))]
pub(super) async fn rack_plan_list(
    _viewer: Viewer,
    State(app): State<App>,
) -> Result<Json<Vec<PlanLineView>>, AppError> {
    Ok(Json(rack_plan::list(&app).await?))
}

/// Brings a file into the rack plan, all of it or nothing. Lines of the plan that the file does not have stay.
#[utoipa::path(post, path = "/rack-plan", tag = "discovery", request_body = PlanImport,
    responses((status = 200, body = Imported), (status = "4XX", body = ErrorBody)))]
pub(super) async fn rack_plan_import(
    Admin(user): Admin,
    State(app): State<App>,
    Body(new): Body<PlanImport>,
) -> Result<Json<Imported>, AppError> {
    Ok(Json(rack_plan::import(&app, &new.csv, new.dry_run, &user.name).await?))
}
