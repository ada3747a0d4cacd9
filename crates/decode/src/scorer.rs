//! One network, or several whose log-probabilities are summed with weights.

use std::ops::Range;

use peregrine_nn::{
    Candidates, Choice, Choices, Network, Origin, Row, RowRequest, RunAhead, Scoring, Sentence,
    Slot, TopKQuery, choose, log_sum_exp,
};

/// A network of an ensemble.
pub struct Member {
    /// The network.
    pub network: Box<dyn Network>,
    /// The weight of its log-probabilities.
    pub weight: f32,
}

/// All networks of a model, stepped together.
pub(crate) struct Scorer {
    members: Vec<Member>,
    /// The log-probabilities of the last step, a list a member; ensembles only.
    scores: Vec<Vec<f32>>,
    /// The first entry of each row in `scores`.
    starts: Vec<usize>,
    combined: Vec<f32>,
    /// Memory for the rows of a member.
    rows: Vec<Row>,
    best: Vec<Choice>,
    /// The last top-k result; ensembles only.
    found: Choices,
    /// The log-probabilities of all words of the rows that want them.
    all_scores: Vec<f32>,
    /// The entries of each row in `all_scores`; empty if no row wants them.
    all_ranges: Vec<Range<usize>>,
}

/// A sentence's slots, one a member.
pub(crate) type Slots = Vec<Slot>;

/// A row for all members, with a slot for each.
#[derive(Clone, Copy)]
pub(crate) struct EnsembleRow<'a> {
    pub(crate) slots: &'a Slots,
    pub(crate) words: Option<&'a [u32]>,
    pub(crate) from: Origin,
    pub(crate) position: u32,
    /// If set, the log-probabilities of all its words are wanted, by the scoring and the bans of this request.
    pub(crate) scored: Option<RowRequest<'a>>,
}

impl Scorer {
    pub(crate) fn new(members: Vec<Member>) -> Scorer {
        Scorer {
            members,
            scores: Vec::new(),
            starts: Vec::new(),
            combined: Vec::new(),
            rows: Vec::new(),
            best: Vec::new(),
            found: Choices::default(),
            all_scores: Vec::new(),
            all_ranges: Vec::new(),
        }
    }

    /// The network, if it is the only one and its weight is 1.
    fn alone(&mut self) -> Option<&mut dyn Network> {
        match self.members.as_mut_slice() {
            [Member { network, weight: 1.0 }] => Some(network.as_mut()),
            _ => None,
        }
    }

    /// From what rows may go on before the last top-k result is collected. Ensembles never run ahead.
    pub(crate) fn run_ahead(&mut self) -> RunAhead {
        self.alone().map_or(RunAhead::No, |network| network.run_ahead())
    }

    /// Whether sentences are encoded on a side stream.
    pub(crate) fn encodes_on_side_stream(&self) -> bool {
        self.members.iter().all(|member| member.network.encodes_on_side_stream())
    }

    pub(crate) fn members(&self) -> usize {
        self.members.len()
    }

    pub(crate) fn position_limit(&self) -> usize {
        self.members.iter().map(|m| m.network.position_limit()).min().unwrap_or(0)
    }

    pub(crate) fn admit(&mut self, sentences: &[Sentence<'_>]) -> Vec<Slots> {
        let mut slots = vec![Slots::new(); sentences.len()];
        for member in &mut self.members {
            for (slots, slot) in slots.iter_mut().zip(member.network.admit(sentences)) {
                slots.push(slot);
            }
        }
        slots
    }

    pub(crate) fn release(&mut self, slots: &Slots) {
        for (member, &slot) in self.members.iter_mut().zip(slots) {
            member.network.release(slot);
        }
    }

    /// Frees all working memory.
    pub(crate) fn reset(&mut self) {
        self.members.iter_mut().for_each(|member| member.network.reset());
    }

    pub(crate) fn step(&mut self, rows: &[EnsembleRow<'_>], alignments: bool) {
        for (index, member) in self.members.iter_mut().enumerate() {
            self.rows.clear();
            self.rows.extend(rows.iter().map(|row| Row {
                slot: row.slots[index],
                from: row.from,
                position: row.position,
            }));
            // Only the first member's attention is ever reported.
            member.network.step(&self.rows, alignments && index == 0);
        }
    }

    /// Begins the top-k of each row of the last step, by the weighted sums of the members' scores.
    pub(crate) fn top_k(&mut self, rows: &[EnsembleRow<'_>], query: TopKQuery<'_>) {
        if let Some(network) = self.alone() {
            network.top_k(query);
            return self.score_all(rows);
        }
        let requests = query.requests;
        self.log_probabilities(rows, requests);
        self.found.clear();
        let mut best = std::mem::take(&mut self.best);
        for (i, (row, request)) in rows.iter().zip(requests).enumerate() {
            self.combine(i);
            let candidates = Candidates { scores: &self.combined, words: row.words };
            choose(candidates, &RowRequest { scoring: Scoring::Logit, ..*request }, &mut best);
            self.found.push(best.iter().copied());
        }
        self.best = best;
        self.score_all(rows);
    }

    /// Computes the log-probabilities of all words for the rows that want them.
    fn score_all(&mut self, rows: &[EnsembleRow<'_>]) {
        self.all_ranges.clear();
        if rows.iter().all(|row| row.scored.is_none()) {
            return;
        }
        let mut all_scores = std::mem::take(&mut self.all_scores);
        all_scores.clear();
        let wanted: Vec<bool> = rows.iter().map(|row| row.scored.is_some()).collect();
        let (mut words, mut is_alone) = (0, false);
        if let Some(network) = self.alone() {
            network.logits(&wanted, &mut all_scores);
            (words, is_alone) = (network.target_words(), true);
        }
        let mut end = 0;
        for (number, row) in rows.iter().enumerate() {
            let start = end;
            if let Some(request) = &row.scored {
                if is_alone {
                    end = start + row.words.map_or(words, <[u32]>::len);
                    log_softmax(&mut all_scores[start..end], row.words, request);
                } else {
                    self.combine(number);
                    all_scores.extend_from_slice(&self.combined);
                    end = all_scores.len();
                }
            }
            self.all_ranges.push(start..end);
        }
        self.all_scores = all_scores;
    }

    /// The log-probabilities of all words of row `row` of the last step, if it wanted them.
    pub(crate) fn all_scores(&self, row: usize) -> &[f32] {
        self.all_ranges.get(row).map_or(&[], |range| &self.all_scores[range.clone()])
    }

    /// Collects the result of the earliest pending top-k request.
    pub(crate) fn take_top_k(&mut self, best: &mut Choices) {
        match self.alone() {
            Some(network) => network.take_top_k(best),
            None => std::mem::swap(&mut self.found, best),
        }
    }

    fn log_probabilities(&mut self, rows: &[EnsembleRow<'_>], requests: &[RowRequest<'_>]) {
        self.scores.resize(self.members.len(), Vec::new());
        let wanted = vec![true; rows.len()];
        for (member, scores) in self.members.iter_mut().zip(&mut self.scores) {
            member.network.logits(&wanted, scores);
        }
        let all = self.members.first().map_or(0, |m| m.network.target_words());
        self.starts.clear();
        self.starts.push(0);
        for (row, request) in rows.iter().zip(requests) {
            let start = self.starts[self.starts.len() - 1];
            let end = start + row.words.map_or(all, <[u32]>::len);
            self.starts.push(end);
            for scores in &mut self.scores {
                log_softmax(
                    &mut scores[start..end],
                    row.words,
                    row.scored.as_ref().unwrap_or(request),
                );
            }
        }
    }

    /// Weighted sum of the members' scores of row `row`.
    fn combine(&mut self, row: usize) {
        let range = self.starts[row]..self.starts[row + 1];
        self.combined.clear();
        self.combined.resize(range.len(), 0.0);
        for (member, scores) in self.members.iter().zip(&self.scores) {
            for (sum, &score) in self.combined.iter_mut().zip(&scores[range.clone()]) {
                *sum += member.weight * score;
            }
        }
    }

    /// Each member's own log-probability of a choice of row `row`.
    pub(crate) fn member_scores(
        &self,
        row: usize,
        words: Option<&[u32]>,
        choice: Choice,
    ) -> Vec<f32> {
        if self.scores.is_empty() {
            return vec![choice.score];
        }
        let range = self.starts[row]..self.starts[row + 1];
        let of = |scores: &Vec<f32>| {
            let candidates = Candidates { scores: &scores[range.clone()], words };
            candidates.column(choice.token).map_or(f32::MIN, |c| candidates.scores[c])
        };
        self.scores.iter().map(of).collect()
    }

    pub(crate) fn alignment(&self, row: usize) -> &[f32] {
        self.members.first().map_or(&[], |m| m.network.alignment(row))
    }
}

fn log_softmax(scores: &mut [f32], words: Option<&[u32]>, request: &RowRequest<'_>) {
    if request.scoring == Scoring::LogProbabilityOfAllowed {
        for &banned in request.banned {
            if let Some(column) = (Candidates { scores, words }).column(banned) {
                scores[column] = f32::NEG_INFINITY;
            }
        }
    }
    let shift = log_sum_exp(scores);
    for score in scores {
        *score -= shift;
    }
}
