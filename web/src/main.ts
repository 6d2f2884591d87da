import { mount } from 'svelte';
import App from './App.svelte';
import { clock } from './live/clock.svelte';
import { router } from './live/router.svelte';
import './live/theme.svelte';
import './styles/tokens.css';
import './styles/base.css';
import './styles/parts.css';

clock.start();
router.start();
const target = document.getElementById('app');
if (target) mount(App, { target });
