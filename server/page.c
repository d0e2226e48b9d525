/* server/page.c - the status page for browsers: numbers of /status/events, nothing from outside; prompts
 * are shown where they may be (struct exchange). */
#include "server/route.h"

/* What the server says is put in as text, never as markup. Speeds are differences of two events. */
static const char page[] =
    "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
    "<title>luce</title><style>:root{color-scheme:light dark;--dim:#667;--line:#8884}"
    "@media(prefers-color-scheme:dark){:root{--dim:#aab}}"
    "body{font:16px/1.5 system-ui,sans-serif;margin:0 auto;padding:1.5rem;max-width:60rem}"
    "h1{font-size:1.4rem;margin:0}h2{font-size:1rem;color:var(--dim);margin:0 0 .3rem;font-weight:600}"
    "#state{color:var(--dim);margin:0 0 1.2rem}main{display:grid;gap:1rem;"
    "grid-template-columns:repeat(auto-fit,minmax(min(100%,17rem),1fr))}"
    "section{border:1px solid var(--line);border-radius:.5rem;padding:.8rem 1rem}"
    "dl{display:grid;grid-template-columns:1fr auto;gap:.1rem 1rem;margin:0}dd{margin:0;text-align:right;"
    "font-variant-numeric:tabular-nums;overflow-wrap:anywhere}meter{width:100%;margin:.3rem 0}</style>"
    "<h1>luce</h1><p id=state role=status>connecting</p><noscript><p>Without scripts: "
    "<a href=/status/json>/status/json</a>, <a href=/metrics>/metrics</a>.</p></noscript><main id=all></main><script>"
    "const groups=[['Requests',{running:'running',waiting:'waiting',capacity:'run at once',queue_limit:'may wait',"
    "total_requests:'HTTP requests'},d=>[d.running,d.capacity]],"
    "['Tokens',{in_s:'prompt, per second',out_s:'written, per second',prompt_tokens:'prompt',"
    "cached_tokens:'prompt, from the cache',generated_tokens:'written',steps:'steps'}],"
    "['Cache',{pages:'pages',used:'held by requests',kept_pages:'held by ended texts',kept_states:'kept states',"
    "prefix_hits:'prefixes found',evicted:'given up'},d=>[d.used,d.pages]]];"
    "const make=(tag,text,to)=>{const e=document.createElement(tag);e.textContent=text;to.append(e);return e};"
    "const show=groups.map(([name,rows,share])=>{const s=make('section','',all);make('h2',name,s);"
    "const m=share&&make('meter','',s);if(m)m.setAttribute('aria-label',name);const l=make('dl','',s),cells={};"
    "for(const k in rows){make('dt',rows[k],l);cells[k]=make('dd','',l)}"
    "return d=>{for(const k in cells)cells[k].textContent=(d[k]??0).toLocaleString('en');"
    "if(m){[m.value,m.max]=share(d);if(!m.max)m.max=1}}});"
    "const shown=make('section','',all);make('h2','Under way',shown);const list=make('div','',shown);"
    "const text=make('pre','',shown);text.style.whiteSpace='pre-wrap';"
    "const requests=d=>{list.textContent='';if(!d.current)make('p','nothing',list);"
    "for(const r of d.requests){const l=make('dl','',list);const row=(k,v)=>{make('dt',k,l);make('dd',v,l)};"
    "row(r.format,`${r.elapsed_s.toFixed(1)} s`);row('prompt tokens',r.prompt_tokens);"
    "row('written',`${r.completion_tokens} of ${r.max_output}`);"
    "make('p',r.prompt_excerpt||'(the prompt is shown on this machine, or with the key)',list)}};"
    "let last,rates={};const update=d=>{const now=performance.now(),per=k=>last?Math.max(0,Math.round((d[k]-last.d[k])"
    "/(now-last.now)*1e3)):0;d.used=d.pages-d.free_pages;requests(d);"
    "if(!last||now-last.now>900){rates={in_s:per('prompt_tokens'),out_s:per('generated_tokens')};last={d,now}}"
    "for(const f of show)f({...d,...rates});"
    "state.textContent=`${d.model}: ${d.phase}, up ${Math.floor(d.uptime_s/3600)} h ${Math.floor(d.uptime_s/60)%60}"
    " min ${d.uptime_s%60} s`};"
    "fetch('/status/json').then(r=>r.json()).then(update);"
    "const events=new EventSource('/status/events');"
    "events.addEventListener('status',e=>update(JSON.parse(e.data)));"
    "events.addEventListener('token',e=>{text.textContent=(text.textContent+JSON.parse(e.data).text).slice(-2000)});"
    "events.onerror=()=>{state.textContent='no connection to the server';last=undefined}</script>";

bool page_get(struct server *s, struct exchange *x, struct refusal *why)
{
    if (!x->wants_html) return status_get(s, x, why);
    x->type = "text/html; charset=utf-8";
    buf_add_text(&x->reply, page);
    return true;
}
