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
  { path: "/flows", load: of("flows"), nav: "Flows", key: "f", icon: "M2 5.5h3.5v5H2zM10.5 2H14v4h-3.5zM10.5 10H14v4h-3.5zM5.5 8H8V4h2.5M8 8v4h2.5" },
  { path: "/flows/:flow", load: of("flows"), title: "Flow run" },
  { path: "/queues", load: of("queues"), nav: "Queues", key: "q", icon: "M2.5 3h11v3h-11zM2.5 8h11v2h-11zM2.5 12.5h11" },
  { path: "/queues/:queue", load: of("queues"), title: "Queue" },
  { path: "/workers", load: of("workers"), nav: "Workers", key: "w", icon: "M8 2.5a2.3 2.3 0 1 0 0 4.6 2.3 2.3 0 0 0 0-4.6M3 13.5c.4-3 2.3-4.5 5-4.5s4.6 1.5 5 4.5" },
  { path: "/dead", load: of("dead"), nav: "Dead letters", key: "d", icon: "M2 4h12v8.5H2zM2 4.3l6 4.7 6-4.7" },
  { path: "/timeline", load: of("timeline"), nav: "Timeline", key: "t", icon: "M2 8h12M4.5 5.5v5M8.5 3v10M12 6v4" },
  { path: "/cluster", load: of("cluster"), nav: "Cluster", key: "c", icon: "M8 2.5v3.5M8 6l-4.5 4M8 6l4.5 4M2 10h3v3H2zM11 10h3v3h-3zM6.5 1h3v3h-3z" },
  { path: "/settings", load: of("settings"), nav: "Settings", key: "s", icon: "M3 4.5h6M12 4.5h1M3 11.5h1M7 11.5h6M10.5 3v3M5.5 10v3" },
  { path: "/settings/:part", load: of("settings"), title: "Settings" },
];

// What is in the bar at the bottom of a narrow screen; the rest is behind "More".
export const FIRST = 4;
export const inNav = PAGES.filter((page) => page.nav);
