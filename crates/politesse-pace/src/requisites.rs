//! Pages of one host that were passed to crawlers recently, and the files that may
//! follow each of them without turns of their own.
//!
//! A crawler can claim of any request that a page embeds it. So a request counts as a
//! requisite only after a page that had a turn, from the same crawler of the same
//! client, for a short time, and each page may have a limited number of them
//! (`pace.requisites`). Does not know which limits a requisite is exempt from.

use std::collections::VecDeque;

use super::context::Now;
use super::request::{Destination, Embedding, TurnOwner, UrlNumber};
use super::schedule::Uptime;

/// Pages that are remembered per host. One more page evicts the oldest; the files of
/// that one then wait for turns of their own.
const PAGES_MAX: usize = 64;

/// Pages passed to crawlers, ordered by time.
#[derive(Debug, Default)]
pub(super) struct GivenPages(VecDeque<GivenPage>);

#[derive(Debug)]
struct GivenPage {
    owner: TurnOwner,
    /// Time at which the page was passed to its crawler.
    at: Uptime,
    /// URL of the page, followed by those of its files: a style sheet embeds fonts and
    /// images, which name the style sheet as their referrer.
    urls: Vec<UrlNumber>,
}

impl GivenPage {
    fn is_of(&self, owner: &TurnOwner) -> bool {
        self.owner.has_client_of(owner) && self.owner.crawler == owner.crawler
    }

    fn embeds(&self, embedding: &Embedding) -> bool {
        let referrer = embedding.referrer;
        referrer.is_some_and(|referrer| self.urls.contains(&referrer))
    }
}

impl GivenPages {
    /// Records a page that was passed to `owner`, unless the request was for a file.
    pub(super) fn give(&mut self, owner: &TurnOwner, embedding: &Embedding, now: &Now) {
        self.forget_old(now);
        let is_page = match embedding.destination {
            Destination::Page => true,
            Destination::File => false,
            // A file beyond the limit of its page must not bring more files.
            Destination::Unknown => !self.is_embedded(owner, embedding),
        };
        if !is_page {
            return;
        }
        if PAGES_MAX <= self.0.len() {
            self.0.pop_front();
        }
        self.0.push_back(GivenPage {
            owner: owner.clone(),
            at: now.uptime,
            urls: vec![embedding.url],
        });
    }

    /// Counts a request of `owner` as one of a page's files. Returns false if no page
    /// may have one more file.
    ///
    /// A file belongs to the page that its referrer names, otherwise to the latest
    /// page: a page can keep browsers from sending a referrer.
    pub(super) fn take_file(
        &mut self,
        owner: &TurnOwner,
        embedding: &Embedding,
        now: &Now,
    ) -> bool {
        self.forget_old(now);
        let is_embedded = self.is_embedded(owner, embedding);
        let may_embed = |page: &GivenPage| match embedding.destination {
            Destination::Page => false,
            Destination::File if !is_embedded => true,
            Destination::File | Destination::Unknown => page.embeds(embedding),
        };
        let files_max = now.active.options.requisites.files.get();
        // The first URL is that of the page.
        let has_room = |page: &GivenPage| page.urls.len() <= files_max;
        let mut latest_first = self.0.iter_mut().rev();
        let page = latest_first.find(|page| page.is_of(owner) && may_embed(page) && has_room(page));
        page.map(|page| page.urls.push(embedding.url)).is_some()
    }

    /// Returns whether the referrer is a page of `owner`, or a file of such a page.
    fn is_embedded(&self, owner: &TurnOwner, embedding: &Embedding) -> bool {
        let mut pages = self.0.iter();
        pages.any(|page| page.is_of(owner) && page.embeds(embedding))
    }

    /// Forgets the pages whose time is over. Returns how many pages are left.
    pub(super) fn forget_old(&mut self, now: &Now) -> usize {
        let time = now.active.options.requisites.time;
        let is_over = |page: &GivenPage| page.at.saturating_add(time) <= now.uptime;
        while self.0.front().is_some_and(is_over) {
            self.0.pop_front();
        }
        self.0.len()
    }
}
