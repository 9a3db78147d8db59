// Search results: decisions and specifications come last. The other numbers are those of Sphinx.
// https://www.sphinx-doc.org/en/master/usage/configuration.html#confval-html_search_scorer
var Scorer = {
  score: ([docName, title, anchor, description, score]) => (/^(adr|spec)\//.test(docName) ? score / 100 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
