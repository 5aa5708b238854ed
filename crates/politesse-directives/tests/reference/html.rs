//! Reference for the meta scanner's tests and fuzz targets: how a browser reads the
//! beginning of a page, that is, whether its head has ended and which metas are in it.
//!
//! `html5ever` stands in for the browser. It gets the beginning without an end of file,
//! so that undecided state stays open. Uses nothing of the scanner; the including file
//! supplies the restrictions of a content.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "shared by path; not everyone who includes this asks everything"
)]

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use html5ever::interface::{ElementFlags, NodeOrText, QuirksMode, TreeSink};
use html5ever::tendril::StrTendril;
use html5ever::tokenizer::{BufferQueue, Tokenizer, TokenizerOpts};
use html5ever::tree_builder::{TreeBuilder, TreeBuilderOpts};
use html5ever::{
    Attribute, ExpandedName, QualName, TokenizerResult, expanded_name, local_name, ns,
};

/// Whether scripts run, which decides how a `<noscript>` is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scripting {
    On,
    Off,
}

/// Head found at the beginning of a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reading {
    /// Whether a body or a frameset has begun.
    pub head_has_ended: bool,
    /// Metas in the head that have a name and a content.
    pub metas: Vec<Meta>,
}

/// Name and content of a meta.
pub type Meta = (String, String);

/// The scanner's result for the beginning of a page.
#[derive(Debug)]
pub struct Scanned {
    /// Whether the scanner says that the head has ended.
    pub claims_end: bool,
    /// Whether the scanner says that it does not know how the page reads.
    pub is_doubtful: bool,
    pub metas: Vec<Meta>,
}

/// Reads the beginning of a page. A byte order mark is not part of it (Encoding
/// standard, section 6).
pub fn read(beginning: &str, scripting: Scripting) -> Reading {
    let beginning = beginning.strip_prefix('\u{FEFF}').unwrap_or(beginning);
    let options = TreeBuilderOpts {
        scripting_enabled: scripting == Scripting::On,
        ..TreeBuilderOpts::default()
    };
    let builder = TreeBuilder::new(Tree::default(), options);
    let tokenizer_options = TokenizerOpts {
        discard_bom: false,
        ..TokenizerOpts::default()
    };
    let tokenizer = Tokenizer::new(builder, tokenizer_options);
    let input = BufferQueue::default();
    input.push_back(StrTendril::from(beginning));
    // html5ever reads the character after `&comma;` before it accepts the reference.
    // The standard does not, since no name is longer than one with its `;`. A space
    // changes nothing else.
    if beginning.ends_with(';') {
        input.push_back(StrTendril::from(" "));
    }
    while !matches!(tokenizer.feed(&input), TokenizerResult::Done) {}
    tokenizer.sink.sink.reading()
}

/// Returns how the scanner differs from the reference where it must not. `restricts`
/// returns the restrictions of a content.
///
/// Three differences are allowed: the metas of a `<noscript>` all count, a page in
/// doubt may give extra metas, and names that no crawler has do not matter.
pub fn difference(
    beginning: &str,
    scanned: &Scanned,
    restricts: impl Fn(&str) -> Vec<String>,
) -> Option<String> {
    let readings = [Scripting::On, Scripting::Off].map(|scripting| read(beginning, scripting));
    if scanned.claims_end && !readings.iter().any(|reading| reading.head_has_ended) {
        return Some(format!("the head has not ended\n{scanned:?}\n{readings:?}"));
    }
    let facts = |metas: &[Meta]| -> BTreeSet<(String, Vec<String>)> {
        let facts = metas.iter().flat_map(|(list, content)| {
            // A name may be a list of names.
            let names = list.split(',').map(str::trim).filter(|name| is_token(name));
            let restricted = restricts(content);
            names.map(move |name| (name.to_ascii_lowercase(), restricted.clone()))
        });
        facts
            .filter(|(_, restricted)| !restricted.is_empty())
            .collect()
    };
    let found = facts(&scanned.metas);
    let wanted: BTreeSet<_> = readings.iter().flat_map(|it| facts(&it.metas)).collect();
    if !wanted.is_subset(&found) {
        return Some(format!("a meta is lost\n{scanned:?}\n{readings:?}"));
    }
    let has_noscript = beginning.to_ascii_lowercase().contains("<noscript");
    let may_be_more = scanned.is_doubtful || has_noscript;
    if !may_be_more && found != wanted {
        return Some(format!("a meta is too many\n{scanned:?}\n{readings:?}"));
    }
    None
}

/// Reports whether a crawler may have this name.
fn is_token(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.*/".contains(&byte);
    name.bytes().all(is_letter)
}

/// Nodes of a page, as far as they matter.
#[derive(Default)]
struct Tree {
    nodes: RefCell<Vec<Node>>,
    has_body: Cell<bool>,
}

/// Index of a node in the tree.
type Handle = usize;

#[derive(Default)]
struct Node {
    element: Option<(QualName, Vec<Attribute>)>,
    parent: Option<Handle>,
    /// Contents of a template, which have no parent.
    contents: Option<Handle>,
}

/// The document is always the first node.
const DOCUMENT: Handle = 0;

impl Tree {
    fn add(&self, node: Node) -> Handle {
        let mut nodes = self.nodes.borrow_mut();
        if nodes.is_empty() {
            nodes.push(Node::default());
        }
        nodes.push(node);
        nodes.len() - 1
    }

    fn reading(&self) -> Reading {
        let nodes = self.nodes.borrow();
        let metas = nodes.iter().filter_map(|node| {
            let (name, attributes) = node.element.as_ref()?;
            let is_meta = name.expanded() == expanded_name!(html "meta");
            if !is_meta || !is_in_head(&nodes, node) {
                return None;
            }
            Some((value(attributes, "name")?, value(attributes, "content")?))
        });
        Reading {
            head_has_ended: self.has_body.get(),
            metas: metas.collect(),
        }
    }

    fn set_parent(&self, node: Handle, parent: Option<Handle>) {
        self.nodes.borrow_mut()[node].parent = parent;
    }

    fn parent(&self, node: Handle) -> Option<Handle> {
        self.nodes.borrow().get(node).and_then(|node| node.parent)
    }
}

fn is_in_head(nodes: &[Node], node: &Node) -> bool {
    let mut parent = node.parent;
    while let Some(node) = parent.map(|parent| &nodes[parent]) {
        let name = node.element.as_ref().map(|(name, _)| name.expanded());
        if name == Some(expanded_name!(html "head")) {
            return true;
        }
        parent = node.parent;
    }
    false
}

fn value(attributes: &[Attribute], name: &str) -> Option<String> {
    let found = attributes.iter().find(|it| &*it.name.local == name);
    found.map(|it| it.value.to_string())
}

impl TreeSink for Tree {
    type Handle = Handle;
    type Output = ();
    type ElemName<'a> = ExpandedElement;

    fn finish(self) {}

    fn parse_error(&self, _: Cow<'static, str>) {}

    fn get_document(&self) -> Handle {
        DOCUMENT
    }

    fn elem_name(&self, target: &Handle) -> ExpandedElement {
        let nodes = self.nodes.borrow();
        let name = nodes[*target]
            .element
            .as_ref()
            .map(|(name, _)| name.clone());
        ExpandedElement(name.expect("only elements are asked for their names"))
    }

    fn create_element(&self, name: QualName, attrs: Vec<Attribute>, flags: ElementFlags) -> Handle {
        let contents = flags.template.then(|| self.add(Node::default()));
        self.add(Node {
            element: Some((name, attrs)),
            parent: None,
            contents,
        })
    }

    fn create_comment(&self, _: StrTendril) -> Handle {
        self.add(Node::default())
    }

    fn create_pi(&self, _: StrTendril, _: StrTendril) -> Handle {
        self.add(Node::default())
    }

    fn append(&self, parent: &Handle, child: NodeOrText<Handle>) {
        let NodeOrText::AppendNode(child) = child else {
            return;
        };
        self.set_parent(child, Some(*parent));
        let nodes = self.nodes.borrow();
        let name = |node: Handle| -> Option<ExpandedName<'_>> {
            nodes[node]
                .element
                .as_ref()
                .map(|(name, _)| name.expanded())
        };
        let bodies = [expanded_name!(html "body"), expanded_name!(html "frameset")];
        let is_body = name(child).is_some_and(|name| bodies.contains(&name));
        if is_body && name(*parent) == Some(expanded_name!(html "html")) {
            self.has_body.set(true);
        }
    }

    fn append_based_on_parent_node(
        &self,
        element: &Handle,
        prev_element: &Handle,
        child: NodeOrText<Handle>,
    ) {
        let parent = self.parent(*element).unwrap_or(*prev_element);
        self.append(&parent, child);
    }

    fn append_doctype_to_document(&self, _: StrTendril, _: StrTendril, _: StrTendril) {}

    fn get_template_contents(&self, target: &Handle) -> Handle {
        self.nodes.borrow()[*target].contents.expect("a template")
    }

    fn same_node(&self, x: &Handle, y: &Handle) -> bool {
        x == y
    }

    fn set_quirks_mode(&self, _: QuirksMode) {}

    fn append_before_sibling(&self, sibling: &Handle, new_node: NodeOrText<Handle>) {
        if let Some(parent) = self.parent(*sibling) {
            self.append(&parent, new_node);
        }
    }

    fn add_attrs_if_missing(&self, _: &Handle, _: Vec<Attribute>) {}

    fn remove_from_parent(&self, target: &Handle) {
        self.set_parent(*target, None);
    }

    fn reparent_children(&self, node: &Handle, new_parent: &Handle) {
        let mut nodes = self.nodes.borrow_mut();
        for child in nodes.iter_mut().filter(|it| it.parent == Some(*node)) {
            child.parent = Some(*new_parent);
        }
    }
}

/// Name of an element, in the form that `html5ever` requires.
#[derive(Debug)]
pub struct ExpandedElement(QualName);

impl html5ever::interface::ElemName for ExpandedElement {
    fn ns(&self) -> &html5ever::Namespace {
        &self.0.ns
    }

    fn local_name(&self) -> &html5ever::LocalName {
        &self.0.local
    }
}
