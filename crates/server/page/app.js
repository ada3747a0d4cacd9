// The page of the translation server: two panes over the native API (`/v1`).
// All addresses are relative, because the server may stand under a prefix. All offsets are UTF-16, as JavaScript counts.

const $ = id => document.getElementById(id);
const [source, mirror, boxes, target, others, fromPicker, toPicker] = ['source', 'mirror', 'boxes', 'target', 'others', 'from', 'to'].map($);

const DEBOUNCE = 250;             // ms without a key press before a request
const LONG = 400;                 // characters from which sentences are streamed
const MAX_FILE = 2 << 20;         // bytes; more would make the page slow, whatever the server takes

const state = {
  languages: new Map(),           // code -> {code, name, native, rtl}
  pairs: [],                      // {from, to, through}
  doc: null,                      // what is shown: {source, from, to, sentences, after, partial}
  detected: null,                 // {language, reliable} of the last text
  request: null,                  // AbortController of the translation under way
  debounce: 0,
  streaming: null,                // the document whose sentences are coming
  retry: null,                    // {again, kind, timer} while waiting to try again
  attempts: 0,                    // failed in a row, for longer and longer waits
  chosen: new Map(),              // source sentence -> alternative put in its place
  fileName: null,
};

// Storage can be forbidden altogether: the page then forgets, and works.
function recall(store, name) {
  try { return window[store].getItem(`peregrine.${name}`); } catch { return null; }
}
function remember(store, name, value) {
  try {
    if (value) window[store].setItem(`peregrine.${name}`, value);
    else window[store].removeItem(`peregrine.${name}`);
  } catch { /* nothing to do */ }
}

const othersOpen = () => others.matches(':popover-open');
const say = text => { $('live').textContent = text; };
const overlap = (a, b) => a[0] < b[1] && b[0] < a[1];
const element = (tag, properties, ...children) => {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
};

// ---- Asking the server --------------------

class Failure extends Error {
  constructor(kind, message, wait) { super(message); this.kind = kind; this.wait = wait; }
}

const KINDS = { unauthorized: 'key', busy: 'busy', rate_limited: 'busy', stopping: 'busy', deadline: 'deadline' };

function failureOf(status, answer, retryAfter) {
  const { code, message } = answer?.error ?? answer ?? {};
  const byStatus = { 401: 'key', 403: 'key', 408: 'deadline', 429: 'busy', 503: 'busy', 504: 'deadline' };
  const kind = KINDS[code] ?? byStatus[status] ?? 'error';
  const text = {
    key: 'This server needs an API key.',
    busy: code === 'rate_limited' ? 'That was more than this server allows at once.' : 'The server is busy.',
    deadline: 'This took longer than the server allows. Try again, or translate less at once.',
    error: message || `The server answered with an error (${status}).`,
  }[kind];
  return new Failure(kind, text, Number(retryAfter) || 5);
}

async function ask(path, body, signal) {
  const headers = {};
  const key = recall('sessionStorage', 'key');
  if (key) headers.Authorization = `Bearer ${key}`;
  const isForm = body instanceof FormData;
  if (body && !isForm) headers['Content-Type'] = 'application/json';
  const options = { method: body ? 'POST' : 'GET', headers, body: body && !isForm ? JSON.stringify(body) : body, signal };
  const response = await fetch(path, options).catch(error => {
    throw signal?.aborted ? error : new Failure('offline', 'The server does not answer.');
  });
  if (response.ok) return response;
  const answer = await response.json().catch(() => null);
  throw failureOf(response.status, answer, response.headers.get('Retry-After'));
}

// Server-sent events of a POST, which EventSource cannot make.
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const blocks = (rest + value).split(/\r?\n\r?\n/);
    rest = blocks.pop();
    for (const block of blocks) {
      const lines = block.split(/\r?\n/);
      const field = name => lines.filter(line => line.startsWith(`${name}:`)).map(line => line.slice(name.length + 1).replace(/^ /, '')).join('\n');
      if (field('data')) yield { event: field('event'), data: JSON.parse(field('data')) };
    }
  }
}

// ---- Languages --------------------

const nameOf = code => state.languages.get(code)?.name ?? code;
const hasPair = (from, to) => state.pairs.some(pair => pair.from === from && pair.to === to);
const unique = list => [...new Set(list)];
const byName = (a, b) => nameOf(a).localeCompare(nameOf(b));
const sources = () => unique(state.pairs.map(pair => pair.from)).sort(byName);
const targets = from => unique(state.pairs.filter(pair => from === 'auto' || pair.from === from).map(pair => pair.to)).sort(byName);

async function loadLanguages() {
  try {
    const answer = await (await ask('v1/languages')).json();
    state.languages = new Map(answer.languages.map(language => [language.code, language]));
    state.pairs = answer.pairs;
  } catch (failure) {
    return report(failure, loadLanguages);
  }
  recovered();
  if (!state.pairs.length) return notice('error', 'This server has no translation model yet.');
  fillSources();
  pickLanguages(...wantedLanguages());
  translate();
}

function option(code) {
  const { name = code, native = name } = state.languages.get(code) ?? {};
  return element('option', { value: code, textContent: native === name ? name : `${name} – ${native}` });
}

function fillSources() {
  const codes = sources();
  const detect = element('option', { value: 'auto', textContent: 'Detect language' });
  fromPicker.replaceChildren(...(codes.length > 1 ? [detect] : []), ...codes.map(option));
}

// From the address, else as last time, else by the languages of the browser.
function wantedLanguages() {
  const hash = location.hash.slice(1);
  const [from, to] = (hash.includes('/') ? hash : recall('localStorage', 'languages') ?? '').split('/');
  return [from, to ?? navigator.languages.map(tag => tag.split('-')[0]).find(code => targets('auto').includes(code))];
}

function pickLanguages(from, to) {
  const codes = [...fromPicker.options].map(item => item.value);
  fromPicker.value = codes.includes(from) ? from : codes[0];
  const reachable = targets(fromPicker.value);
  toPicker.replaceChildren(...reachable.map(option));
  toPicker.value = reachable.includes(to) ? to : reachable[0];
  state.chosen.clear();
  showDetected(null);
  const languages = `${fromPicker.value}/${toPicker.value}`;
  remember('localStorage', 'languages', languages);
  if (location.hash.slice(1) !== languages) history.replaceState(null, '', `#${languages}`);
}

function showDetected(detected) {
  state.detected = detected;
  const auto = fromPicker.querySelector('[value=auto]');
  const name = detected?.language && nameOf(detected.language);
  if (auto) auto.textContent = name ? `${detected.reliable ? 'Detected' : 'Perhaps'}: ${name}` : 'Detect language';
  const from = fromPicker.value === 'auto' ? detected?.language : fromPicker.value;
  for (const pane of [source, mirror]) setLanguage(pane, from);
  const swapped = from && hasPair(toPicker.value, from);
  $('swap').setAttribute('aria-disabled', String(!swapped));
  $('swap').title = swapped || !from ? 'Swap languages' : `No model translates from ${nameOf(toPicker.value)} to ${nameOf(from)}`;
}

function setLanguage(pane, code) {
  pane.lang = code ?? '';
  pane.dir = code ? (state.languages.get(code)?.rtl ? 'rtl' : 'ltr') : 'auto';
}

function swap() {
  if ($('swap').getAttribute('aria-disabled') === 'true') return say($('swap').title);
  const from = fromPicker.value === 'auto' ? state.detected.language : fromPicker.value;
  const text = state.doc && !state.doc.partial ? shownText() : source.value;
  pickLanguages(toPicker.value, from);
  setSource(text);
  say(`From ${nameOf(fromPicker.value)} to ${nameOf(toPicker.value)}`);
}

// ---- Translating --------------------

function sourceChanged() {
  mirrorText.data = source.value;
  const pairs = source.value.match(/[\ud800-\udbff][\udc00-\udfff]/g)?.length ?? 0;
  const length = source.value.length - pairs;
  $('count').textContent = length ? `${length.toLocaleString('en')} character${length === 1 ? '' : 's'}` : '';
  $('clear').hidden = !length;
  document.body.classList.toggle('long', length > LONG);
  if (othersOpen()) others.hidePopover();
  unlight();
}

function setSource(text) {
  source.value = text;
  sourceChanged();
  translate();
}

function schedule(delay = DEBOUNCE) {
  clearTimeout(state.debounce);
  // While the server is busy, nothing is asked before its time; the retry takes the text as it is then.
  if (state.retry?.kind === 'busy' && source.value.trim()) return;
  state.debounce = setTimeout(translate, source.value.trim() ? delay : 0);
}

const isLong = text => text.length > LONG || (text.match(/[.!?…。！？؟]\s|[。！？]|\n/g)?.length ?? 0) > 3;

async function translate() {
  if (!state.pairs.length) return;          // translates by itself once the languages are known
  clearTimeout(state.debounce);
  state.request?.abort();
  state.request = state.streaming = null;
  endRetry();
  // Lone surrogates are no valid JSON text; their replacement has the same length.
  const text = source.value.toWellFormed?.() ?? source.value;
  if (!text.trim()) return showNothing();
  const request = state.request = new AbortController();
  setBusy(true);
  try {
    const answer = await requestTranslation(text, request.signal);
    if (!request.signal.aborted) finish(text, answer.translations[0]);
  } catch (failure) {
    if (!request.signal.aborted) report(failure, translate);
  } finally {
    if (state.request === request) { state.request = null; setBusy(false); }
  }
}

async function requestTranslation(text, signal) {
  const body = { text, from: fromPicker.value, to: toPicker.value, offsets: 'utf16', alignments: true, scores: true };
  if (isLong(text)) body.stream = true;
  const response = await ask('v1/translate', body, signal);
  if (!response.headers.get('Content-Type')?.startsWith('text/event-stream')) return response.json();
  const doc = state.streaming = carryOver(text, body.to);
  try {
    for await (const { event, data } of events(response)) {
      if (event === 'sentence') place(doc, data);
      if (event === 'done') return data;
      if (event === 'error') throw failureOf(0, data);
    }
  } catch (error) {
    if (signal.aborted || error instanceof Failure) throw error;
  }
  throw new Failure('offline', 'The connection to the server broke off.');
}

// What was translated before and stands unchanged at the beginning and end of a long text stays, until the new answer is there.
function carryOver(text, to) {
  const old = state.doc?.to === to ? state.doc : null;
  const sentences = [];
  if (old) {
    const shortest = Math.min(text.length, old.source.length);
    let head = 0;
    while (head < shortest && text[head] === old.source[head]) head++;
    let tail = 0;
    while (tail < shortest - head && text.at(-1 - tail) === old.source.at(-1 - tail)) tail++;
    const shift = text.length - old.source.length;
    for (const sentence of old.sentences) {
      const [start, end] = sentence.source;
      if (end < head || (end === head && head === text.length)) sentences.push(sentence);
      else if (start > old.source.length - tail) sentences.push(wholeSentence([start + shift, end + shift], sentence.text));
    }
  }
  return { source: text, from: fromPicker.value, to, sentences, after: '', partial: true };
}

function place(doc, { source: range, translation }) {
  doc.sentences = doc.sentences.filter(other => !overlap(other.source, range));
  const index = doc.sentences.findLastIndex(other => other.source[0] < range[0]) + 1;
  doc.sentences.splice(index, 0, wholeSentence(range, translation));
  doc.came = (doc.came ?? 0) + range[1] - range[0];
  $('progress').style.setProperty('--done', doc.came / doc.source.length);
  $('progress').classList.add('measured');
  // Many sentences can come at once.
  doc.timer ??= setTimeout(() => {
    doc.timer = null;
    if (state.streaming === doc) show(doc);
  }, 60);
}

function finish(text, translation) {
  state.streaming = null;
  recovered();
  if (translation.detected) showDetected(translation.detected);
  const doc = readAnswer(text, translation);
  markDoubt(doc);
  show(doc);
  const through = translation.through?.map(nameOf).join(', ');
  $('through').textContent = through ? `By way of ${through}` : '';
  warn(translation.flags);
  say('Translated.');
}

function warn(flags = []) {
  const text = {
    cut: 'A sentence was too long for the model and was cut.',
    endless: 'The model found no end for a sentence: check the translation.',
    looped: 'The translation seems to repeat itself: check it.',
    copied: 'A part of the text was left untranslated.',
  };
  const flag = Object.keys(text).find(name => flags.includes(name));
  if (flag) notice('warning', text[flag]);
}

// ---- Showing a translation --------------------

// A sentence without words of its own counts as one word that comes from the whole source sentence.
function wholeSentence(range, text) {
  const all = [0, text.length];
  return { source: range, text, before: '', words: [{ range: all }], links: [{ source: range, target: all, weight: 1 }] };
}

function readAnswer(text, answer) {
  const given = answer.sentences?.length ? answer.sentences : [{ source: [0, text.length], target: [0, answer.text.length] }];
  let end = 0;
  const sentences = given.map(sentence => {
    const before = answer.text.slice(end, sentence.target[0]);
    end = sentence.target[1];
    return { ...readSentence(sentence, answer.text), before };
  });
  return { source: text, from: answer.from, to: answer.to, sentences, after: answer.text.slice(end), partial: false };
}

// Offsets into the target become offsets into its sentence, so that sentences can be moved and replaced.
function readSentence({ source, target: [start, end], words, alignments }, text) {
  const local = range => [range[0] - start, range[1] - start];
  const links = (alignments ?? []).map(link => ({ source: link.source, target: local(link.target), weight: link.weight ?? 1 }));
  const sentence = wholeSentence(source, text.slice(start, end));
  if (words?.length) sentence.words = words.map(word => ({ range: local(word.target), score: word.score }));
  if (links.length) sentence.links = links;
  return sentence;
}

// The least certain words by their rank in this text: scores of different models and words cannot be compared, ranks can.
function markDoubt(doc) {
  const words = doc.sentences.flatMap(sentence => sentence.words.filter(word =>
    Number.isFinite(word.score) && /[\p{L}\p{N}]/u.test(sentence.text.slice(...word.range))));
  const count = words.length < 20 ? 0 : Math.min(8, Math.ceil(words.length * 0.04));
  for (const word of words.sort((a, b) => a.score - b.score).slice(0, count)) word.doubt = true;
  doc.doubts = count > 0;
}

const textOf = (doc, sentence) => doc.source.slice(...sentence.source);
const shown = new WeakMap();      // element -> {sentence, word}

function show(doc) {
  state.doc = doc;
  const parts = [];
  let at = 0;
  for (const sentence of doc.sentences) {
    parts.push(...(doc.partial ? waiting(doc.source.slice(at, sentence.source[0])) : [sentence.before]));
    const other = state.chosen.get(textOf(doc, sentence));
    parts.push(drawSentence(other === undefined ? sentence : wholeSentence(sentence.source, other)));
    at = sentence.source[1];
  }
  parts.push(...(doc.partial ? waiting(doc.source.slice(at)) : [doc.after]));
  unlight();
  setLanguage(target, doc.to);
  target.classList.remove('stale');
  target.replaceChildren(...parts);
  target.querySelector('.word')?.setAttribute('tabindex', '0');
  $('doubt-legend').hidden = !doc.doubts;
  $('copy').disabled = $('save').disabled = doc.partial;
}

// Bars in the shape of the text that is still to come.
function waiting(text) {
  const [, before, body, after] = text.match(/^(\s*)([^]*?)(\s*)$/);
  return body ? [before, element('span', { className: 'waiting', textContent: body, ariaHidden: 'true' }), after] : [text];
}

function drawSentence(sentence) {
  const span = element('span', { className: 'sentence' });
  shown.set(span, { sentence });
  let at = 0;
  for (const word of sentence.words) {
    const [start, end] = word.range;
    if (start < at || end <= start) continue;
    const part = element('span', { className: word.doubt ? 'word doubt' : 'word', textContent: sentence.text.slice(start, end) });
    shown.set(part, { sentence, word });
    span.append(sentence.text.slice(at, start), part);
    at = end;
  }
  span.append(sentence.text.slice(at));
  return span;
}

const shownText = () => target.textContent;

function showNothing() {
  recovered();
  setBusy(false);
  state.doc = state.streaming = state.fileName = null;
  state.chosen.clear();
  target.replaceChildren();
  setLanguage(target, toPicker.value);
  if (fromPicker.value === 'auto') showDetected(null);
  $('through').textContent = '';
  $('doubt-legend').hidden = $('copy').disabled = $('save').disabled = true;
  unlight();
}

function setBusy(busy) {
  $('target-pane').setAttribute('aria-busy', String(busy));
  if (busy) $('progress').classList.remove('measured');
  // An old translation of another text is greyed while its successor is under way for long, or failed.
  if (!busy && state.doc && state.doc.source !== source.value) target.classList.add('stale');
}

// ---- Which words belong together --------------------

const mirrorText = new Text('');
// A line break after the text gives a last, empty line its height, as in the text area.
mirror.append(mirrorText, document.createElement('br'));

const aligned = () => state.doc && state.doc.source === source.value;
// Weak links beside a strong one are noise of the attention.
function strongest(links) {
  const best = Math.max(...links.map(link => link.weight));
  return links.filter(link => link.weight >= best / 2);
}

function light(sentence, sourceRanges, targetRanges) {
  unlight();
  drawBoxes([sentence.source], 'sentence');
  drawBoxes(sourceRanges, 'lit');
  for (const span of target.querySelectorAll('.sentence')) {
    if (String(shown.get(span).sentence.source) !== String(sentence.source)) continue;
    span.classList.add('lit');
    for (const part of span.children) {
      if (targetRanges.some(range => overlap(range, shown.get(part).word.range))) part.classList.add('lit');
    }
  }
}

function unlight() {
  boxes.replaceChildren();
  for (const part of target.querySelectorAll('.lit')) part.classList.remove('lit');
}

function lightFromTarget(part) {
  const { sentence, word } = shown.get(part);
  const ranges = strongest(sentence.links.filter(link => overlap(link.target, word.range))).map(link => link.source);
  light(sentence, ranges, [word.range]);
  // On a phone the source scrolls by itself.
  const box = boxes.querySelector('.lit');
  const top = box && box.offsetTop - $('editor').scrollTop;
  if (box && (top < 0 || top + box.offsetHeight > $('editor').clientHeight)) $('editor').scrollTop = box.offsetTop - 24;
  return ranges.map(range => source.value.slice(...range)).join(' ');
}

function lightFromSource(found) {
  if (!found) return unlight();
  const { sentence, range } = found;
  const links = strongest(sentence.links.filter(link => overlap(link.source, range)));
  light(sentence, [range], links.map(link => link.target));
}

function rectsOf(range) {
  const place = document.createRange();
  place.setStart(mirrorText, Math.min(range[0], mirrorText.length));
  place.setEnd(mirrorText, Math.min(range[1], mirrorText.length));
  return [...place.getClientRects()];
}

// Boxes behind the text area, because a text area cannot mark its own words.
function drawBoxes(ranges, kind) {
  if (!aligned()) return;
  const origin = mirror.getBoundingClientRect();
  for (const rect of ranges.flatMap(rectsOf)) {
    const box = element('i', { className: kind });
    Object.assign(box.style, {
      left: `${rect.left - origin.left - 1}px`, top: `${rect.top - origin.top}px`, width: `${rect.width + 2}px`, height: `${rect.height}px`,
    });
    boxes.append(box);
  }
}

// All source words that have a link, in order.
function sourceWords(doc) {
  return doc.sourceWords ??= doc.sentences.flatMap(sentence =>
    unique(sentence.links.map(link => String(link.source))).map(range => ({ sentence, range: range.split(',').map(Number) })))
    .sort((a, b) => a.range[0] - b.range[0]);
}

// The word under the pointer: to its line by halving, then along the line, where right-to-left words stand in any order.
function sourceWordAt(x, y) {
  const words = sourceWords(state.doc);
  let [low, high] = [0, words.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((rectsOf(words[middle].range).at(-1)?.bottom ?? 0) < y) low = middle + 1;
    else high = middle;
  }
  for (const word of words.slice(low, low + 200)) {
    const rects = rectsOf(word.range);
    if (rects.some(rect => rect.left <= x && x <= rect.right && rect.top <= y && y <= rect.bottom)) return word;
    if (rects[0]?.top > y) return null;
  }
  return null;
}

function pointAtSource({ clientX, clientY }) {
  if (aligned()) lightFromSource(sourceWordAt(clientX, clientY));
}

function caretInSource() {
  const at = source.selectionStart;
  if (aligned()) lightFromSource(sourceWords(state.doc).find(({ range }) => range[0] <= at && at <= range[1]));
}

function focusWord(part) {
  for (const old of target.querySelectorAll('[tabindex]')) old.removeAttribute('tabindex');
  part.tabIndex = 0;
  part.focus();
}

function targetKey(event) {
  const part = document.activeElement?.closest('#target .word');
  if (!part) return;
  const words = [...target.querySelectorAll('.word')];
  const at = words.indexOf(part);
  const step = target.dir === 'rtl' ? -1 : 1;
  const otherSentence = direction => {
    const all = [...target.querySelectorAll('.sentence')];
    return all[all.indexOf(part.parentElement) + direction]?.querySelector('.word');
  };
  const next = {
    ArrowRight: () => words[at + step], ArrowLeft: () => words[at - step], Home: () => words[0], End: () => words.at(-1),
    ArrowDown: () => otherSentence(1), ArrowUp: () => otherSentence(-1),
  }[event.key];
  if (event.key === 'Escape') unlight();
  else if (event.key === 'Enter' && !event.ctrlKey && !event.metaKey) openOthers(part);
  else if (next) focusWord(next() ?? part);
  else return;
  event.preventDefault();
}

// ---- Other translations of a sentence --------------------

let othersRequest = null;

async function openOthers(part) {
  const { sentence } = shown.get(part);
  const doc = state.doc;
  const text = textOf(doc, sentence);
  othersRequest?.abort();
  const { signal } = othersRequest = new AbortController();
  showOthers([], 'Looking for other translations…');
  others.showPopover();
  placeOthers(part);
  others.focus();
  try {
    const body = { text, from: doc.from, to: doc.to, n_best: 4, beam: 4, split: 'none' };
    const [answer] = (await (await ask('v1/translate', body, signal)).json()).translations;
    const found = answer.alternatives ?? answer.sentences?.[0]?.alternatives ?? [answer];
    const list = unique([sentence.text, ...found.map(other => other.text.trim())]);
    showOthers(list, list.length > 1 ? '' : 'The model has no other translation of this sentence.', text);
    placeOthers(part);
    $('others-list').querySelector('button:nth-of-type(2)')?.focus();
  } catch (failure) {
    if (!signal.aborted) showOthers([], failure.message);
  }
}

function showOthers(list, note, text) {
  $('others-note').textContent = note;
  $('others-list').replaceChildren(...list.map((other, index) => {
    const button = element('button', { type: 'button', lang: target.lang, dir: target.dir }, ...differences(other, list[0]));
    if (index === 0) button.ariaCurrent = 'true';
    button.onclick = () => choose(text, other);
    return button;
  }));
}

// Words that the present translation does not have, in bold.
function differences(text, present) {
  if (text === present || !Intl.Segmenter) return [text];
  const words = part => [...new Intl.Segmenter(target.lang, { granularity: 'word' }).segment(part)];
  const known = new Set(words(present).map(({ segment }) => segment));
  return words(text).map(({ segment, isWordLike }) => isWordLike && !known.has(segment) ? element('b', {}, segment) : segment);
}

function choose(text, other) {
  others.hidePopover();
  const doc = state.doc;
  const at = doc.sentences.findIndex(sentence => textOf(doc, sentence) === text);
  // The model's own translation comes back with its words and alignment.
  if (doc.sentences[at]?.text === other) state.chosen.delete(text);
  else state.chosen.set(text, other);
  show(doc);
  const part = target.querySelectorAll('.sentence')[at]?.querySelector('.word');
  if (part) focusWord(part);
  say('Replaced.');
}

function placeOthers(part) {
  if (!part.isConnected) return;                             // a newer translation came meanwhile
  const pane = target.getBoundingClientRect();
  const sentence = part.parentElement.getBoundingClientRect();
  const width = Math.min(560, pane.width - 16);
  others.style.width = `${width}px`;
  others.style.left = `${target.dir === 'rtl' ? pane.right - width - 8 : pane.left + 8}px`;
  const height = others.offsetHeight;
  const fits = sentence.bottom + height + 16 < innerHeight;
  others.style.top = `${fits ? sentence.bottom + 6 : Math.max(8, sentence.top - height - 6)}px`;
}

function othersKey(event) {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (!step) return;
  const buttons = [...$('others-list').children];
  buttons.at((buttons.indexOf(document.activeElement) + step) % buttons.length)?.focus();
  event.preventDefault();
}

function clickTarget(event) {
  const part = event.target.closest('.word') ?? event.target.closest('.sentence')?.querySelector('.word');
  if (!part) return unlight();
  if (!getSelection().isCollapsed) return;                   // the end of a selection, not a click
  const lit = part.parentElement.classList.contains('lit');
  lightFromTarget(part);
  // A finger cannot hover: its first tap shows the alignment, the second asks for alternatives.
  if (event.pointerType === 'touch' && !lit) return;
  openOthers(part);
}

// ---- Files, copy, download --------------------

async function openFile(files) {
  const [file] = files;
  if (files.length > 1) return notice('error', 'Please open one file at a time.');
  if (!/\.(txt|text)$/i.test(file.name) && (file.type !== 'text/plain' || /\.\w+$/.test(file.name))) return translateDocument(file);
  if (file.size > MAX_FILE) return notice('error', `“${file.name}” is larger than 2 MB; please split it.`);
  const text = decode(new Uint8Array(await file.arrayBuffer()));
  if (text === null) return notice('error', `“${file.name}” is not text in UTF-8 or UTF-16.`);
  if (!text.trim()) return notice('error', `“${file.name}” is empty.`);
  setSource(text);
  state.fileName = file.name.replace(/\.\w+$/, '');
  say(`Opened ${file.name}`);
}

// A document is translated as a whole, and goes straight to the downloads: it is not shown here.
async function translateDocument(file) {
  notice('busy', `Translating “${file.name}” …`);
  const form = new FormData();
  form.append('from', fromPicker.value);
  form.append('to', toPicker.value);
  form.append('file', file);
  try {
    const response = await ask('v1/documents', form);
    const name = /filename="([^"]+)"/.exec(response.headers.get('Content-Disposition') ?? '')?.[1];
    download(await response.blob(), name ?? file.name);
    recovered();
    notice('done', `“${file.name}” is translated: ${name}`);
  } catch (failure) {
    if (failure instanceof Failure && failure.kind === 'error') return notice('error', `“${file.name}”: ${failure.message}`);
    report(failure, () => translateDocument(file));
  }
}

function decode(bytes) {
  const encoding = bytes[0] === 0xff && bytes[1] === 0xfe ? 'utf-16le' : bytes[0] === 0xfe && bytes[1] === 0xff ? 'utf-16be' : 'utf-8';
  try {
    const text = new TextDecoder(encoding, { fatal: true }).decode(bytes);
    return text.includes('\0') ? null : text;
  } catch { return null; }
}

async function copy() {
  // Browsers give the clipboard to secure addresses only; a server in the local network is none.
  try { await navigator.clipboard.writeText(shownText()); } catch { copyBySelection(); }
  const label = $('copy').lastElementChild;
  label.textContent = 'Copied';
  say('Copied.');
  setTimeout(() => { label.textContent = 'Copy'; }, 1600);
}

function copyBySelection() {
  getSelection().selectAllChildren(target);
  document.execCommand('copy');
  getSelection().removeAllRanges();
}

function save() {
  download(new Blob([shownText()], { type: 'text/plain' }), `${state.fileName ?? 'translation'}.${state.doc.to}.txt`);
}

function download(blob, name) {
  const address = URL.createObjectURL(blob);
  element('a', { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10000);
}

function clear() {
  // An editing command, unlike a new value, can be undone with Ctrl+Z.
  source.focus();
  source.select();
  if (!document.execCommand('delete')) setSource('');
}

// ---- Notices, and trying again --------------------

function notice(kind, text, label = 'Dismiss', action = hideNotice) {
  $('notice').className = `notice ${kind}`;
  $('notice').hidden = false;
  $('notice-text').textContent = text;
  $('notice-count').textContent = '';
  $('notice-action').textContent = label;
  $('notice-action').onclick = action;
  say(text);
}

function hideNotice() {
  if ($('notice').contains(document.activeElement)) source.focus();
  $('notice').hidden = true;
}

function endRetry() {
  clearTimeout(state.retry?.timer);
  state.retry = null;
}

function recovered() {
  endRetry();
  state.attempts = 0;
  hideNotice();
}

function report(failure, again) {
  endRetry();
  state.attempts++;
  state.streaming = null;
  if (!(failure instanceof Failure)) console.error(failure);
  if (failure.kind === 'key') return askForKey(again);
  if (failure.kind === 'busy') return retryIn(failure.wait, { again, kind: 'busy' }, failure.message);
  if (failure.kind === 'offline') {
    return retryIn(Math.min(20, 2 ** state.attempts), { again, kind: 'offline' }, navigator.onLine ? failure.message : 'You are offline.');
  }
  const text = failure instanceof Failure ? failure.message : 'The answer of the server could not be read.';
  notice('error', text, 'Try again', again);
}

function retryIn(seconds, retry, text) {
  state.retry = retry;
  notice('warning', text, 'Try now', retry.again);
  const until = Date.now() + seconds * 1000;
  const tick = () => {
    const left = Math.ceil((until - Date.now()) / 1000);
    if (left <= 0) return retry.again();
    $('notice-count').textContent = `Trying again in ${left} s.`;
    retry.timer = setTimeout(tick, 250);
  };
  tick();
}

function askForKey(again) {
  const refused = Boolean(recall('sessionStorage', 'key'));
  const note = text => { $('key-note').textContent = text; };
  note(refused ? 'The server did not accept this key.' : 'This server asks for a key. It is kept until this tab is closed.');
  $('key-note').className = refused ? 'error' : '';
  notice('warning', 'This server needs an API key.', 'Enter key', () => askForKey(again));
  if (!$('key-dialog').open) $('key-dialog').showModal();
  $('key').select();
  $('key-form').onsubmit = event => {
    event.preventDefault();
    const key = $('key').value.trim();
    if (!/^[\x21-\x7e]+$/.test(key)) return note('A key has only letters, digits and signs without accents.');
    remember('sessionStorage', 'key', key);
    $('key-dialog').close();
    hideNotice();
    again();
  };
}

// ---- Colours, keys, start --------------------

const systemDark = matchMedia('(prefers-color-scheme: dark)');

function showTheme() {
  const stored = recall('localStorage', 'theme');
  if (stored) document.documentElement.dataset.theme = stored;
  else delete document.documentElement.dataset.theme;
  const dark = stored ? stored === 'dark' : systemDark.matches;
  $('theme').title = $('theme').ariaLabel = dark ? 'Light colours' : 'Dark colours';
  $('theme').querySelector('use').setAttribute('href', dark ? '#i-sun' : '#i-moon');
  return dark;
}

function switchTheme() {
  const dark = !showTheme();
  // Nothing is stored where the choice is the system's own: the page then goes on following it.
  remember('localStorage', 'theme', dark === systemDark.matches ? null : dark ? 'dark' : 'light');
  showTheme();
}

function shortcut(event) {
  if (!event.ctrlKey && !event.metaKey) return;
  const action = { Enter: translate, '.': swap, '/': () => $('keys-dialog').showModal() }[event.key];
  if (!action || document.querySelector('dialog[open]')) return;
  event.preventDefault();
  action();
}

// A finger or mouse sends many moves a frame; one is enough.
let pointer = null;
function pointerMoved(event) {
  if (event.pointerType !== 'mouse') return;
  if (!pointer) requestAnimationFrame(() => { if (source.matches(':hover')) pointAtSource(pointer); pointer = null; });
  pointer = event;
}

function listen() {
  source.addEventListener('input', event => {
    sourceChanged();
    if (!event.isComposing) schedule(event.inputType === 'insertFromPaste' ? 0 : DEBOUNCE);
  });
  source.addEventListener('compositionend', () => schedule());
  source.addEventListener('pointermove', pointerMoved);
  source.addEventListener('pointerleave', () => { if (!othersOpen()) unlight(); });
  source.addEventListener('click', caretInSource);
  source.addEventListener('keyup', event => { if (/^(Arrow|Home|End|Page)/.test(event.key)) caretInSource(); });
  source.addEventListener('blur', unlight);

  target.addEventListener('pointerover', event => {
    if (event.pointerType === 'mouse' && event.target.matches('.word')) lightFromTarget(event.target);
  });
  target.addEventListener('pointerleave', event => { if (event.pointerType === 'mouse' && !othersOpen()) unlight(); });
  target.addEventListener('focusin', event => {
    if (!event.target.matches('.word')) return;
    const from = lightFromTarget(event.target);
    say(`From: ${from}${event.target.matches('.doubt') ? '; the model was unsure' : ''}`);
  });
  target.addEventListener('focusout', () => { if (!othersOpen()) unlight(); });
  target.addEventListener('keydown', targetKey);
  target.addEventListener('click', clickTarget);
  others.addEventListener('keydown', othersKey);
  others.addEventListener('toggle', event => { if (event.newState === 'closed') othersRequest?.abort(); });

  fromPicker.addEventListener('change', () => { pickLanguages(fromPicker.value, toPicker.value); translate(); });
  toPicker.addEventListener('change', () => { pickLanguages(fromPicker.value, toPicker.value); translate(); });
  addEventListener('hashchange', () => { if (state.pairs.length) { pickLanguages(...wantedLanguages()); translate(); } });
  // There is no listener for "offline": a server on the same machine answers without a network.
  addEventListener('online', () => state.retry?.kind === 'offline' && state.retry.again());
  addEventListener('resize', unlight);
  addEventListener('keydown', shortcut);

  const onClick = { swap, copy, save, clear, theme: switchTheme, open: () => $('file').click(), keys: () => $('keys-dialog').showModal(), 'key-cancel': () => $('key-dialog').close() };
  for (const [id, action] of Object.entries(onClick)) $(id).addEventListener('click', action);
  $('keys-close').addEventListener('submit', event => { event.preventDefault(); $('keys-dialog').close(); });
  $('file').addEventListener('change', event => { openFile([...event.target.files]); event.target.value = ''; });
  systemDark.addEventListener('change', showTheme);
  listenToFiles();
}

function listenToFiles() {
  const hasFiles = event => event.dataTransfer?.types.includes('Files');
  const mark = on => document.body.classList.toggle('dropping', on);
  addEventListener('dragover', event => { if (hasFiles(event)) { event.preventDefault(); mark(true); } });
  addEventListener('dragleave', event => { if (!event.relatedTarget) mark(false); });
  addEventListener('drop', event => {
    mark(false);
    if (!hasFiles(event)) return;
    event.preventDefault();
    openFile([...event.dataTransfer.files]);
  });
  addEventListener('paste', event => {
    // Office programs put a picture of the text beside the text.
    if (!event.clipboardData?.files.length || event.clipboardData.types.includes('text/plain')) return;
    event.preventDefault();
    openFile([...event.clipboardData.files]);
  });
}

showTheme();
listen();
sourceChanged();
showNothing();
loadLanguages();
