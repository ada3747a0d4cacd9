//! Words that end in a full stop without ending a sentence.
//!
//! The lists are short: a full stop before a small letter never ends a sentence, so only words
//! before names, numbers or (in German) nouns matter. All lists are used together, because an
//! abbreviation of one language seldom ends a sentence of another, and the language of a text is
//! not always known.

use std::sync::OnceLock;

use rustc_hash::FxHashSet;

/// Abbreviations that never end a sentence.
static ALWAYS: Listed = Listed::new(&[
    // English
    "Mr Mrs Ms Mx Messrs Dr Prof Rev Revd Fr Sr Jr St Mt Ft Gen Maj Col Lt Capt Cpt Cmdr Sgt Cpl Adm \
     Gov Sen Rep Pres Supt Det Insp Hon Amb Ven Msgr Bros vs viz cf approx Esq e.g i.e",
    // German
    "Hr Fr Frl Hrn Dipl Ing Mag Dkfm Univ Prof bzw bspw beispw sog ca usf evtl ggf inkl exkl zzgl vgl \
     Str Nds geb gest Abb Abs Anm Bd Hrsg hrsg Jh Jhd Kap Tab Tel z.B z.T d.h u.a o.ä i.d.R u.U s.o \
     s.u v.a m.E o.g n.Chr v.Chr",
    // French
    "M MM Mme Mmes Mlle Mlles Mgr Me Dr Pr Ste Sté env p.ex c.-à-d av apr J.-C",
    // Spanish
    "Sr Sra Srta Sres Sras D Dña Dn Dª Ud Uds Vd Vds Dr Dra Dres Lic Excmo Excma Ilmo Ilma Avda Pza Gral \
     Cnel Tte Arq p.ej ej aprox",
    // Portuguese
    "Sr Sra Srs Sras Dr Dra Drs Exmo Exma Eng Engª Prof Profª Profs Av Gen Cel Ten Cap Maj p.ex aprox \
     V.Exa D",
    // Italian
    "Sig Sigg Sig.ra Sig.na Dott Dott.ssa Prof Prof.ssa Ing Avv Geom Rag Arch On Gent Egr Spett Mons \
     ecc.to es p.es ca",
    // Dutch
    "dhr mevr mw drs ir ing mr prof dr bijv bv nl ca resp o.a m.b.t d.w.z t.a.v i.p.v z.g",
    // Polish
    "ul al pl os gen płk mjr kpt por prof dr hab mgr inż im św ks abp bp np tzn tzw ok m.in p.n.e red",
    // Czech and Slovak
    "pan pí p Ing Mgr MUDr JUDr PhDr RNDr MVDr Bc doc prof dr gen plk mjr kpt sv tzv např např tj čs ul \
     nám resp napr",
    // Scandinavian languages
    "bl.a f.eks t.ex dvs ca kl fr hr dr prof s.k m.m m.fl o.s.v d.v.s",
    // Hungarian, Romanian, Finnish
    "özv ifj id Dl Dna Dra Dvs nr esim ns mm prof dr",
    // Slovene, Croatian, Serbian
    "npr tzv g ga dr mr prof mag doc sv ul",
    // Russian, Ukrainian, Bulgarian
    "г гг гл гр ул пл пр просп пер им проф акад доц ген полк кап т.е т.н т.к т.д.н см ср напр др.греч \
     св вул ім обл ред",
    // Greek
    "κ κα κος κυρ Δρ π.χ δηλ λ.χ βλ",
    // Hindi: titles, and the names of Latin letters
    "डॉ श्री सुश्री श्रीमती प्रो पं ए बी सी डी ई एफ एच जे के एल एम एन ओ पी आर एस टी यू वी",
]);

/// Abbreviations that do not end a sentence before a number, as in references.
static BEFORE_NUMBER: Listed = Listed::new(&[
    "No Nos no nos Nr nr Nro nro Núm núm num Num n nº n° Art art Arts arts Abs Sec sec Fig fig Figs figs \
     Tab p pp P PP S ff Vol vol Bd Ch ch Kap cap Cap c Op op par Par pag pág pag str Str č čl poz рис Рис \
     стр с ст п гл табл № Eq eq ca approx lit rozdz ust Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec \
     Okt Dez Tel tel Ext ext Nº N°",
]);

/// English words that begin sentences but not names.
static FUNCTION_WORDS: Listed = Listed::new(&[
    "The A An It He She They We I You In On At His Her Their This That These But And So",
]);

/// Capitalised months after a day's number and full stop (`3. Oktober`), by the prefixes that
/// languages share.
const MONTHS: &[&str] = &[
    "Jan",
    "Jän",
    "Feb",
    "Mär",
    "Apr",
    "Mai",
    "Jun",
    "Jul",
    "Aug",
    "Sep",
    "Okt",
    "Nov",
    "Dez",
    "Jahrhundert",
    "Jh",
    "Etage",
    "Stock",
    "Klasse",
    "Platz",
    "Mal",
    "Kapitel",
    "Auflage",
];

/// The words of some lists, put together when they are first asked for.
struct Listed {
    lists: &'static [&'static str],
    words: OnceLock<FxHashSet<&'static str>>,
}

impl Listed {
    const fn new(lists: &'static [&'static str]) -> Listed {
        Listed { lists, words: OnceLock::new() }
    }

    fn has(&self, word: &str) -> bool {
        let words = || self.lists.iter().flat_map(|list| list.split_whitespace()).collect();
        self.words.get_or_init(words).contains(word)
    }
}

/// Whether a word with a full stop never ends a sentence. `word` is without the stop.
pub(super) fn never_ends(word: &str) -> bool {
    if ALWAYS.has(word) {
        return true;
    }
    // An abbreviation in small letters has a capital at the beginning of a sentence.
    let mut rest = word.chars();
    let small = rest.next().filter(|c| c.is_uppercase()).map(|c| c.to_lowercase());
    small.is_some_and(|first| {
        let word: String = first.chain(rest).collect();
        word.chars().count() > 1 && ALWAYS.has(&word)
    })
}

/// Whether a word with a full stop belongs to the number after it.
pub(super) fn goes_with_number(word: &str) -> bool {
    // A German street is one word with its name: `Hauptstr. 7`.
    BEFORE_NUMBER.has(word) || word.ends_with("str")
}

/// Whether a word that follows an abbreviation begins a sentence rather than a name.
pub(super) fn begins_sentence(next_word: &str) -> bool {
    FUNCTION_WORDS.has(next_word)
}

/// Whether a number with a full stop belongs to the word after it.
pub(super) fn is_counted(next_word: &str) -> bool {
    MONTHS.iter().any(|month| next_word.starts_with(month))
}
