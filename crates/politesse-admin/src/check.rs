//! `POST /api/v1/check`: plans of requests that are not sent. For a crawler and many
//! URLs, the response has the decision, the rule and the earliest start for each URL.
//!
//! Does not know how a plan is made: `serve` passes a [`PlanSource`].

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

use super::api::json;
use super::arrival::AdminArrival;
use politesse_base::clients::directory::ClientDirectory;
use politesse_base::clock;
use politesse_base::metrics::{Metrics, ResultLabel};
use politesse_decision::decide::Reason;
use politesse_decision::record::Effect;
use politesse_proxy::plan::{Plan, PlanRequest, RobotsSource};
use politesse_proxy::problem::MalformedRequest;
use politesse_robots::crawler::ProductToken;
use politesse_robots::origin::Target;

/// Maximum number of URLs in one question.
pub const URLS_MAX: usize = 1000;
/// Maximum size of a question: a thousand URLs of a thousand bytes.
const QUESTION_BYTES_MAX: usize = 1 << 20;
/// Maximum number of questions answered at a time. Each may fetch robots.txt from up to
/// eight origins, and crawlers need the remaining slots.
const QUESTIONS_MAX: usize = 8;

/// Result of a [`PlanSource`].
pub type PlanFuture = Pin<Box<dyn Future<Output = PlanResult> + Send>>;

/// Plans in the order of the URLs, unless the crawler's name is refused.
pub type PlanResult = Result<Vec<Plan>, MalformedRequest>;

/// Source of the page: plans requests with the configuration in force.
#[derive(Clone)]
pub struct PlanSource(pub Arc<dyn Fn(PlanRequest) -> PlanFuture + Send + Sync>);

impl fmt::Debug for PlanSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanSource")
    }
}

/// State of the page.
#[derive(Debug)]
pub(super) struct CheckState {
    source: PlanSource,
    clients: Arc<ClientDirectory>,
    metrics: Arc<Metrics>,
    /// One permit for each question that may be answered at the same time.
    free: Semaphore,
}

impl CheckState {
    /// Makes the state of a page.
    pub(super) fn new(
        source: PlanSource,
        clients: Arc<ClientDirectory>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            source,
            clients,
            metrics,
            free: Semaphore::new(QUESTIONS_MAX),
        })
    }
}

/// Body of a question.
///
/// Unknown members are refused, because a misspelled `fetch` would send requests to
/// origins.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PlanQuestion {
    /// A product token or a whole User-Agent value.
    agent: String,
    /// URLs that the crawler would request.
    urls: Vec<String>,
    /// Whether a robots.txt that is not in the cache is fetched.
    #[serde(default = "yes")]
    fetch: bool,
}

fn yes() -> bool {
    true
}

/// Body of a response.
#[derive(Debug, Serialize)]
struct QuestionAnswers<'a> {
    /// Time from which waits are counted.
    time: Timestamp,
    answers: Vec<UrlAnswer<'a>>,
}

/// Answer about one URL.
#[derive(Debug, Serialize)]
#[serde(untagged)]
enum UrlAnswer<'a> {
    /// The URL is malformed.
    Malformed { url: &'a str, error: String },
    /// Plan of a request for the URL.
    Planned(Box<PlanJson<'a>>),
}

/// Plan of one URL, with the words of the record.
#[derive(Debug, Serialize)]
struct PlanJson<'a> {
    url: &'a str,
    verdict: &'static str,
    reason: Option<&'static str>,
    effect: Option<&'static str>,
    line: Option<u32>,
    rule: Option<&'a str>,
    group: Option<&'a [String]>,
    token: Option<&'a str>,
    /// Earliest start; `null` for a URL that would be refused.
    starts_at: Option<Timestamp>,
    wait_seconds: Option<f64>,
    wait_reason: Option<&'static str>,
    pause_seconds: Option<f64>,
    /// Time until which the robots.txt used for the decision is valid.
    holds_until: Option<Timestamp>,
}

/// Reason why a question is not answered.
#[derive(Debug)]
enum CheckRefusal {
    /// The body is not JSON, or has wrong members.
    Form(String),
    /// The body is too long.
    Size,
    /// `Content-Type` is not JSON.
    MediaType,
    /// Too many questions are being answered.
    Busy,
}

/// Answers a question about URLs.
pub(super) async fn check(State(state): State<Arc<CheckState>>, request: Request) -> Response {
    match answer(&state, request).await {
        Ok(response) => response,
        Err(refusal) => refusal.into_response(),
    }
}

async fn answer(state: &CheckState, request: Request) -> Result<Response, CheckRefusal> {
    let (parts, body) = request.into_parts();
    // A form of another site cannot send this type without a CORS preflight. So a
    // browser that has stored the token queries no origin on behalf of another site.
    if !is_json(&parts.headers) {
        return Err(CheckRefusal::MediaType);
    }
    let content = to_bytes(body, QUESTION_BYTES_MAX).await;
    let question = PlanQuestion::read(&content.map_err(|_| CheckRefusal::Size)?)?;
    // Does not wait: a connection to this listener lasts only half a minute.
    let _place = state.free.try_acquire().map_err(|_| CheckRefusal::Busy)?;
    let user_agent = HeaderValue::from_str(&question.agent);
    let Some(AdminArrival {
        client: address, ..
    }) = parts.extensions.get().cloned()
    else {
        return Err(CheckRefusal::Busy);
    };
    let targets: Vec<Result<Target, String>> = question
        .urls
        .iter()
        .map(|url| url.parse::<Target>().map_err(|error| error.to_string()))
        .collect();
    let asked = PlanRequest {
        user_agent: user_agent
            .map_err(|_| CheckRefusal::Form("agent cannot stand in a field".to_owned()))?,
        sharer: state.clients.at(address),
        address,
        source: if question.fetch {
            RobotsSource::Origin
        } else {
            RobotsSource::Cache
        },
        targets: targets.iter().flatten().cloned().collect(),
    };
    let planned = (state.source.0)(asked).await;
    let plans = planned.map_err(|error| CheckRefusal::Form(format!("agent: {error}")))?;
    for plan in &plans {
        let result = verdict(plan);
        let checked = &state.metrics.checked_urls;
        checked.get_or_create(&ResultLabel { result }).inc();
    }
    let time = clock::now();
    let mut in_order = plans.iter();
    let answers = question.urls.iter().zip(targets).map(|(url, target)| {
        match target.map(|_| in_order.next()) {
            Ok(plan) => UrlAnswer::Planned(Box::new(PlanJson::new(url, plan, time))),
            Err(error) => UrlAnswer::Malformed { url, error },
        }
    });
    Ok(json(&QuestionAnswers {
        time,
        answers: answers.collect(),
    }))
}

fn is_json(fields: &HeaderMap) -> bool {
    let field = fields.get(header::CONTENT_TYPE);
    let value = field.and_then(|field| field.to_str().ok());
    value.is_some_and(|value| {
        let kind = value.split(';').next().unwrap_or_default();
        kind.trim().eq_ignore_ascii_case("application/json")
    })
}

fn verdict(plan: &Plan) -> &'static str {
    let decision = plan.decision.as_ref();
    decision.map_or("unknown", |decision| decision.ruling().verdict.as_str())
}

impl PlanQuestion {
    fn read(body: &[u8]) -> Result<Self, CheckRefusal> {
        let question: Self =
            serde_json::from_slice(body).map_err(|error| CheckRefusal::Form(error.to_string()))?;
        if URLS_MAX < question.urls.len() {
            return Err(CheckRefusal::Size);
        }
        Ok(question)
    }
}

impl<'a> PlanJson<'a> {
    /// Writes the plan of `url`, with waits counted from `time`. Without a plan the
    /// verdict is unknown.
    fn new(url: &'a str, plan: Option<&'a Plan>, time: Timestamp) -> Self {
        let decision = plan.and_then(|plan| plan.decision.as_ref());
        let ruling = decision.map(|decision| decision.ruling());
        let crawler = decision.map(|decision| &decision.evidence().inquiry.crawler);
        let snapshot = decision.and_then(|decision| decision.evidence().snapshot.as_ref());
        let start = plan.and_then(|plan| plan.start);
        let rule = ruling.and_then(|ruling| ruling.rule.as_ref());
        let token = ruling.and_then(|ruling| ruling.token.as_ref());
        let group = ruling.map(|ruling| &*ruling.group);
        Self {
            url,
            verdict: plan.map_or("unknown", verdict),
            reason: ruling.map(|ruling| ruling.reason.as_str()),
            effect: plan.and_then(Plan::effect).map(Effect::as_str),
            line: rule.and_then(|rule| rule.line),
            rule: rule.map(|rule| rule.text.as_str()),
            group: group.filter(|group| !group.is_empty()),
            token: token.or_else(|| crawler?.token()).map(ProductToken::as_str),
            starts_at: start.and_then(|start| time.checked_add(start.wait).ok()),
            wait_seconds: start.map(|start| start.wait.as_secs_f64()),
            wait_reason: start.and_then(|start| start.reason).map(Reason::as_str),
            pause_seconds: start
                .and_then(|start| start.pause)
                .map(|pause| pause.as_secs_f64()),
            holds_until: snapshot.map(|snapshot| snapshot.expires_at),
        }
    }
}

impl IntoResponse for CheckRefusal {
    fn into_response(self) -> Response {
        match self {
            Self::Form(problem) => {
                let text = format!(
                    "{problem}\nwanted: {{\"agent\": \"ExampleBot/1.0\", \"urls\": [\"https://…\"], \"fetch\": true}}\n"
                );
                (StatusCode::BAD_REQUEST, text).into_response()
            }
            Self::Size => {
                let text = format!("{URLS_MAX} URLs and {QUESTION_BYTES_MAX} bytes at most\n");
                (StatusCode::PAYLOAD_TOO_LARGE, text).into_response()
            }
            Self::MediaType => {
                let text = "Content-Type: application/json is wanted\n";
                (StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into_response()
            }
            Self::Busy => {
                let fields = [(header::RETRY_AFTER, HeaderValue::from_static("1"))];
                let text = "too many questions are being answered\n";
                (StatusCode::SERVICE_UNAVAILABLE, fields, text).into_response()
            }
        }
    }
}
