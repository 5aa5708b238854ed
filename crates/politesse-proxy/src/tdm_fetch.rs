//! Requests for the TDM file of an origin (`/.well-known/tdmrep.json`), made for a page
//! whose crawler has purposes that the file could deny.
//!
//! The file is treated as a page: judged by robots.txt, sent in a turn under a permit,
//! and recorded in a row of its own. One request serves all pages that wait for the file.
//! Does not know the contents of the file or how long it is used.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, ACCEPT_ENCODING, FROM, USER_AGENT};
use http::{Extensions, HeaderMap, HeaderValue, Method, Response};
use http_body_util::BodyExt as _;
use tokio::time::{sleep, timeout};

use super::completion::RecordCompletion;
use super::exchange::Proxy;
use super::problem::Problem;
use super::request::ProxyRequest;
use super::turns::{RequestTurns, tdm_delay};
use politesse_decision::decide::{Decision, Inquiry, Permit, Verdict};
use politesse_decision::delay::Delay;
use politesse_decision::tdm::TDM_FILE;
use politesse_directives::preferences::TdmFile;
use politesse_net::body::ResponseBody;
use politesse_net::client::{OutgoingHead, TargetForm};
use politesse_robots::origin::Target;

/// Time limit from the turn of the request to the end of its response. Pages wait for it.
const FETCH_TIME_MAX: Duration = Duration::from_secs(30);

impl Proxy {
    /// Fetches the TDM file that `decision` lacks, and decides again. The page is delayed
    /// if the file cannot be requested in time.
    ///
    /// # Errors
    ///
    /// [`Problem`] if the row of the request for the file cannot be written.
    pub(super) async fn with_tdm_file<'a>(
        &'a self,
        decision: Decision,
        turns: RequestTurns<'a>,
        request: &ProxyRequest,
    ) -> Result<(Decision, RequestTurns<'a>), Problem> {
        if let Some(delay) = self.ask_once(request, &turns).await? {
            return Ok((decision.later(delay), turns));
        }
        let (again, waited) = self.turns.decide_by_tdm_file(request, turns).await;
        if again.evidence().lacks_tdm_file() {
            // The file was already evicted for lack of room. The page is not sent without
            // it.
            return Ok((again.later(tdm_delay()), waited));
        }
        Ok((again, waited))
    }

    /// Fetches the file, or waits until another request has fetched it. Returns a delay
    /// if the page cannot wait that long.
    async fn ask_once(
        &self,
        request: &ProxyRequest,
        turns: &RequestTurns<'_>,
    ) -> Result<Option<Delay>, Problem> {
        let files = &self.turns.decider.robots.tdm_files;
        let slot = files.slot(&request.inquiry, &request.asker);
        let asking = tokio::select! {
            biased;
            asking = slot.asking.lock() => asking,
            () = turns.connection().end.ended() => return Ok(Some(tdm_delay())),
            () = sleep(turns.left()) => return Ok(Some(tdm_delay())),
        };
        if slot.is_fresh() {
            return Ok(None);
        }
        let delay = self.ask(request, turns).await;
        drop(asking);
        delay
    }

    /// Decides about the file, and requests it if robots.txt allows that. Returns a delay
    /// if its turn does not come in time.
    async fn ask(
        &self,
        page: &ProxyRequest,
        turns: &RequestTurns<'_>,
    ) -> Result<Option<Delay>, Problem> {
        let files = &self.turns.decider.robots.tdm_files;
        let connection = turns.connection();
        let Some(mut request) = tdm_request(page, turns.left()) else {
            return Ok(Some(tdm_delay()));
        };
        let (decision, mut own_turns) = self.turns.decide_in_turn(&request, connection).await;
        let evidence = decision.evidence();
        match evidence.ruling.verdict {
            Verdict::Later => return Ok(evidence.delay.clone().or_else(|| Some(tdm_delay()))),
            // Nothing is sent, and no crawler requested the file, so there is no row.
            // Report mode makes no difference, because the request is the proxy's own.
            Verdict::Disallow => {
                files.keep(&page.inquiry, &page.asker, None);
                return Ok(None);
            }
            Verdict::Allow => {}
        }
        let mut completion = RecordCompletion::start(&connection.activity);
        let label = request.label.as_ref();
        let receipt = self
            .record(&decision, &own_turns, label, &mut completion)
            .await?;
        let permit = decision.into_permit(&receipt)?;
        let sent = self.send(permit, &mut request, &mut own_turns, &mut completion);
        let (answer, error) = match timeout(FETCH_TIME_MAX, sent).await {
            Ok(Ok(answer)) => (Some(answer), None),
            Ok(Err(error)) => (None, Some(error)),
            Err(_) => (None, Some("http_response_timeout")),
        };
        completion.end(error);
        files.keep(&page.inquiry, &page.asker, answer.as_ref());
        Ok(None)
    }

    /// Sends the request for the file. Returns its response, or the `Proxy-Status` error.
    async fn send(
        &self,
        permit: Permit,
        request: &mut ProxyRequest,
        turns: &mut RequestTurns<'_>,
        completion: &mut RecordCompletion,
    ) -> Result<Response<Bytes>, &'static str> {
        turns.mark_sent();
        let upload = request.upload.take();
        let mut counted = turns.counting(&mut completion.sent);
        let sent = self
            .upstream
            .forward(permit, &mut request.outgoing, upload, &mut counted);
        let response = sent.await.map_err(|error| error.as_str())?;
        completion.status = Some(response.status().as_u16());
        turns.record_response(&response).await;
        let (head, body) = response.into_parts();
        let body = read(body, completion).await?;
        Ok(Response::from_parts(head, body))
    }
}

/// Reads a body, but stops once it exceeds the maximum length of a TDM file.
async fn read(
    mut body: ResponseBody,
    completion: &mut RecordCompletion,
) -> Result<Bytes, &'static str> {
    let mut bytes = BytesMut::new();
    while bytes.len() <= TdmFile::BYTES_MAX
        && let Some(frame) = body.frame().await
    {
        let frame = frame.map_err(|error| error.as_str())?;
        if let Ok(data) = frame.into_data() {
            bytes.extend_from_slice(&data);
            completion.bytes += data.len() as u64;
        }
    }
    Ok(bytes.freeze())
}

/// Builds the request for the TDM file of the origin of `page`, in the name of its
/// crawler. It waits for its turn no longer than `left`.
fn tdm_request(page: &ProxyRequest, left: Duration) -> Option<ProxyRequest> {
    let target = Target::new(page.inquiry.target.origin.clone(), TDM_FILE).ok()?;
    let inquiry = Inquiry {
        crawler: page.inquiry.crawler.clone(),
        target,
        method: Method::GET.as_str().to_owned(),
    };
    Some(ProxyRequest {
        inquiry: inquiry.into(),
        foreign_name: None,
        max_wait: Some(left),
        embedding: None,
        preferred_wait: None,
        label: page.label.clone(),
        // `None`, because the file is judged by robots.txt only.
        preferences: None,
        place: page.place.clone(),
        asker: page.asker.clone(),
        outgoing: head(page),
        upload: page.upload.without_body(),
    })
}

fn head(page: &ProxyRequest) -> OutgoingHead {
    // No content coding, as for a robots.txt: an uncompressed file cannot expand to
    // gigabytes.
    let fields = [
        (USER_AGENT, page.asker.user_agent.clone()),
        (FROM, page.asker.from.clone()),
        (ACCEPT, Some(HeaderValue::from_static("application/json"))),
        (ACCEPT_ENCODING, Some(HeaderValue::from_static("identity"))),
    ];
    OutgoingHead {
        method: Method::GET,
        headers: fields
            .into_iter()
            .filter_map(|(name, value)| Some((name, value?)))
            .collect::<HeaderMap>(),
        form: TargetForm::Url,
        path: None,
        extensions: Extensions::new(),
    }
}
