report.start();
document.documentElement.dataset.ready = "yes";
