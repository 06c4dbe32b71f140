// The one place that names the library.
export {
  createContext, h, html, render, useCallback, useContext, useEffect, useErrorBoundary, useLayoutEffect, useMemo,
  useReducer, useRef, useState,
} from "../vendor/htm-preact.js";
