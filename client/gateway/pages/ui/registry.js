// All pages. A new page is a file in pages/ and a line here: the pattern of its path, what its file
// exports as `Page`, and, for those in the navigation, a word and the letter that goes there behind
// "g". `icon` is drawn in a box of 16 by 16.
const of = (file) => () => import(`./pages/${file}.js`);

export const PAGES = [
  { path: "/", load: of("overview"), nav: "Overview", key: "o", icon: "M2.5 9h3l2-5.5 2.5 9L12 9h1.5" },
  { path: "/jobs", load: of("jobs"), nav: "Jobs", key: "j", icon: "M2.5 3.5h11M2.5 8h11M2.5 12.5h7" },
  { path: "/jobs/:job", load: of("job"), title: "Job", follows: ({ job }) => `job=${job}` },
  { path: "/jobs/:job/edit", load: of("edit"), title: "Edit", follows: ({ job }) => `job=${job}` },
  { path: "/new-job", load: of("edit"), title: "New job" },
  { path: "/runs", load: of("runs"), nav: "Runs", key: "r", icon: "M5 3.2v9.6L12.5 8Z" },
  { path: "/runs/:run", load: of("run"), title: "Run", follows: ({ run }) => `run=${run}` },
];

// What is in the bar at the bottom of a narrow screen; the rest is behind "More".
export const FIRST = 4;
export const inNav = PAGES.filter((page) => page.nav);
